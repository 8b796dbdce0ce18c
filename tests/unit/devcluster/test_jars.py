from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pytest

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.devcluster import jars
from pyspark_rocketmq.devcluster.jars import (
    cache_folder,
    proxy_jars,
    resolve,
    rocketmq_coordinates,
    rocketmq_jars,
)
from pyspark_rocketmq.devcluster.repositories import Repositories
from pyspark_rocketmq.devcluster.system.locking import file_lock
from pyspark_rocketmq.errors import DevClusterError, OptionError

COORDINATES = ("org.example:one:1.0",)


class FakeIvy:
    """Stands for Ivy: makes the jars that the test wants and counts the calls."""

    def __init__(self, *, broken_calls: int = 0) -> None:
        self.calls = 0
        self._broken_calls = broken_calls

    def __call__(self, _coordinates: object, ivy_folder: Path, *_: object) -> tuple[Path, ...]:
        self.calls += 1
        jar = ivy_folder / "jars" / "one.jar"
        jar.parent.mkdir(parents=True, exist_ok=True)
        if self.calls <= self._broken_calls:
            jar.write_bytes(b"half a jar")
        else:
            with zipfile.ZipFile(jar, "w") as archive:
                archive.writestr("A.class", b"")
        return (jar,)


@pytest.fixture
def ivy(monkeypatch: pytest.MonkeyPatch) -> FakeIvy:
    fake = FakeIvy()
    monkeypatch.setattr(jars, "_fetch", fake)
    return fake


def _resolve(cache: Path) -> tuple[Path, ...]:
    return resolve(COORDINATES, cache=cache, repositories=Repositories())


def test_the_second_time_asks_nobody(tmp_path: Path, ivy: FakeIvy) -> None:
    assert _resolve(tmp_path) == _resolve(tmp_path)
    assert ivy.calls == 1


def test_a_cache_may_move(tmp_path: Path, ivy: FakeIvy) -> None:
    _resolve(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    assert _resolve(tmp_path / "b") == (tmp_path / "b/ivy/jars/one.jar",)
    assert ivy.calls == 1


@pytest.mark.parametrize("damage", ["gone", "other size", "no json", "other form", "other coordinates"])
def test_a_lock_file_that_is_not_true_is_not_trusted(tmp_path: Path, ivy: FakeIvy, damage: str) -> None:
    (jar,) = _resolve(tmp_path)
    (lock,) = (tmp_path / "locks").iterdir()
    match damage:
        case "gone":
            jar.unlink()
        case "other size":
            jar.write_bytes(jar.read_bytes()[:-1])
        case "no json":
            lock.write_text(lock.read_text()[:20])
        case "other form":
            lock.write_text("[]")
        case _:
            lock.write_text(json.dumps({**json.loads(lock.read_text()), "coordinates": ["a:b:2"]}))
    assert _resolve(tmp_path) == (jar,)
    assert zipfile.is_zipfile(jar)
    assert ivy.calls == 2


def test_half_a_jar_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_fetch", FakeIvy(broken_calls=1))
    (jar,) = _resolve(tmp_path)
    assert zipfile.is_zipfile(jar)


def test_what_never_becomes_a_jar_leaves_no_lock_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "_fetch", FakeIvy(broken_calls=9))
    with pytest.raises(DevClusterError, match="is not a jar"):
        _resolve(tmp_path)
    assert not (tmp_path / "locks").exists()


def test_an_interrupted_download_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> tuple[Path, ...]:
        raise KeyboardInterrupt

    monkeypatch.setattr(jars, "_fetch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _resolve(tmp_path)
    assert not (tmp_path / "locks").exists()
    monkeypatch.setattr(jars, "_fetch", FakeIvy())
    assert len(_resolve(tmp_path)) == 1


def test_a_second_resolver_waits_until_its_deadline(tmp_path: Path, ivy: FakeIvy) -> None:
    with (
        file_lock(tmp_path / "jars.lock", Deadline(SYSTEM_CLOCK, 1000), SYSTEM_CLOCK),
        pytest.raises(DevClusterError, match=r"kept this lock for 0\.2 s"),
    ):
        resolve(COORDINATES, cache=tmp_path, repositories=Repositories(), timeout_ms=200)
    assert ivy.calls == 0


@pytest.mark.parametrize("coordinate", ["", "a:b", "a:b:", "a:b:c:d", "a::1"])
def test_a_malformed_coordinate(tmp_path: Path, coordinate: str) -> None:
    with pytest.raises(OptionError, match="group:artifact:version"):
        resolve([coordinate], cache=tmp_path)


def test_where_the_cache_is() -> None:
    assert cache_folder({"PYSPARK_ROCKETMQ_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}) == Path("/own")
    assert cache_folder({"XDG_CACHE_HOME": "/xdg"}) == Path("/xdg/pyspark-rocketmq")
    assert cache_folder({}) == Path.home() / ".cache" / "pyspark-rocketmq"


def test_repositories_come_from_spark_defaults(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\n\n"
        "spark.jars.ivySettings  /etc/ivy.xml\n"
        "spark.jars.repositories=file:/a,file:/b\n"
        "spark.without.value\n"
    )
    found = Repositories.from_environment({"SPARK_CONF_DIR": str(tmp_path)})
    assert found == Repositories(ivy_settings="/etc/ivy.xml", repositories="file:/a,file:/b")


def test_own_variables_win_over_spark_defaults(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.jars.repositories file:/a\n")
    found = Repositories.from_environment(
        {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_ROCKETMQ_REPOSITORIES": "file:/mine"}
    )
    assert found == Repositories(repositories="file:/mine")


def test_coordinates_of_a_version() -> None:
    assert "org.apache.rocketmq:rocketmq-broker:4.9.7" in rocketmq_coordinates("4.9.7")


def test_without_pyspark_an_unpacked_rocketmq_of_the_version_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(jars, "resolve", lambda coordinates: asked.append(coordinates) or ())
    monkeypatch.setattr(jars, "spark_home", lambda _environ: None)
    for name in ("rocketmq-broker-5.4.0.jar", "netty.jar"):
        (tmp_path / "lib" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "lib" / name).touch()
    environ = {"ROCKETMQ_HOME": str(tmp_path)}
    assert [jar.name for jar in rocketmq_jars("5.4.0", environ)] == ["netty.jar", "rocketmq-broker-5.4.0.jar"]
    assert not asked
    assert rocketmq_jars("5.3.0", environ) == ()
    assert rocketmq_jars("5.4.0", {}) == ()
    assert proxy_jars("5.4.0", environ) == ()
    assert asked.pop() == ("org.apache.rocketmq:rocketmq-proxy:5.4.0",)
    (tmp_path / "lib" / "rocketmq-proxy-5.4.0.jar").touch()
    assert len(proxy_jars("5.4.0", environ)) == 3
    monkeypatch.setattr(jars, "spark_home", lambda _environ: tmp_path)
    assert rocketmq_jars("5.4.0", environ) == proxy_jars("5.4.0", environ) == ()
    assert len(asked) == 4


def test_a_machine_that_can_download_nothing_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "spark_home", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DevClusterError, match=r"pyspark-rocketmq\[spark\].*coursier or Maven.*ROCKETMQ_HOME"):
        _resolve(tmp_path)
    with pytest.raises(DevClusterError, match="only PySpark reads Ivy settings"):
        resolve(COORDINATES, cache=tmp_path, repositories=Repositories(ivy_settings="ivy.xml"))


COURSIER = """#!{python}
import pathlib, sys, zipfile
words = sys.argv[1:]
jar = pathlib.Path(words[words.index("--cache") + 1]) / "one.jar"
jar.parent.mkdir(parents=True)
zipfile.ZipFile(jar, "w").writestr("arguments", "\\n".join(words))
print(jar)
"""

MAVEN = """#!{python}
import pathlib, sys, zipfile
given = dict(word[2:].split("=", 1) for word in sys.argv if word.startswith("-D"))
pom = pathlib.Path(sys.argv[sys.argv.index("--file") + 1]).read_text()
if "org.example" not in pom:
    sys.exit("[ERROR] not found")
folder = pathlib.Path(given["outputDirectory"])
folder.mkdir(parents=True)
zipfile.ZipFile(folder / "one.jar", "w").writestr("pom", pom)
"""


def _only_program(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave one program on ``PATH``, and no PySpark."""
    folder.mkdir()
    (folder / name).write_text(text.format(python=sys.executable))
    (folder / name).chmod(0o755)
    monkeypatch.setattr(jars, "spark_home", lambda: None)
    monkeypatch.setenv("PATH", str(folder))


def test_without_pyspark_maven_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _only_program(tmp_path / "bin", "mvn", MAVEN, monkeypatch)
    wanted = Repositories(repositories="https://a?b&c", mirror="https://mirror")
    (jar,) = resolve(COORDINATES, cache=tmp_path, repositories=wanted)
    with zipfile.ZipFile(jar) as archive:
        pom = archive.read("pom").decode()
    assert "<groupId>org.example</groupId><artifactId>one</artifactId><version>1.0</version>" in pom
    assert "<repository><id>central</id><url>https://mirror</url></repository>" in pom
    assert "<url>https://a?b&amp;c</url>" in pom
    assert "<pluginRepository><id>central</id><url>https://mirror</url></pluginRepository>" in pom
    with pytest.raises(DevClusterError, match=r"cannot resolve a:b:1: check the network") as caught:
        resolve(("a:b:1",), cache=tmp_path, repositories=wanted)
    assert "[ERROR] not found" in caught.value.log_tail


def test_without_pyspark_coursier_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _only_program(tmp_path / "bin", "cs", COURSIER, monkeypatch)
    wanted = Repositories(repositories="https://a, https://b", mirror="https://mirror")
    (jar,) = resolve(COORDINATES, cache=tmp_path, repositories=wanted)
    with zipfile.ZipFile(jar) as archive:
        words = archive.read("arguments").decode().split()
    cache = str(tmp_path / "ivy" / "coursier")
    assert words[:5] == ["fetch", "--quiet", "--cache", cache, "--no-default"]
    places = ["--repository", "https://a", "--repository", "https://b", "--repository", "https://mirror"]
    assert words[5:] == [*places, *COORDINATES]
