"""Jars are resolved by the Ivy inside PySpark, here from a repository in a folder: no network needed."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from pyspark_rocketmq.devcluster.jars import resolve
from pyspark_rocketmq.devcluster.repositories import Repositories
from pyspark_rocketmq.errors import DevClusterError

POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId><artifactId>{name}</artifactId><version>1.0</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = """
    <dependency><groupId>org.example</groupId><artifactId>{name}</artifactId><version>1.0</version></dependency>
"""
SETTINGS = """<ivysettings>
  <settings defaultResolver="mirror"/>
  <resolvers><ibiblio name="mirror" m2compatible="true" root="file://{repository}"/></resolvers>
</ivysettings>
"""


@pytest.fixture
def mirror(tmp_path: Path) -> Repositories:
    """A mirror with ``one``, which needs ``two``, named by an Ivy settings file."""
    repository = tmp_path / "repository"
    for name, needs in (("one", "two"), ("two", None)):
        folder = repository / "org" / "example" / name / "1.0"
        folder.mkdir(parents=True)
        dependencies = DEPENDENCY.format(name=needs) if needs else ""
        (folder / f"{name}-1.0.pom").write_text(POM.format(name=name, dependencies=dependencies))
        with zipfile.ZipFile(folder / f"{name}-1.0.jar", "w") as jar:
            jar.writestr(f"{name}.txt", name)
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS.format(repository=repository))
    return Repositories(ivy_settings=str(settings))


def test_a_jar_comes_with_what_it_needs_from_the_mirror_of_spark_s_settings(
    tmp_path: Path, mirror: Repositories
) -> None:
    jars = resolve(["org.example:one:1.0"], cache=tmp_path / "cache", repositories=mirror)
    assert [jar.name for jar in jars] == ["org.example_one-1.0.jar", "org.example_two-1.0.jar"]
    with zipfile.ZipFile(jars[1]) as jar:
        assert jar.namelist() == ["two.txt"]


def test_half_a_jar_of_an_interrupted_copy_is_replaced(tmp_path: Path, mirror: Repositories) -> None:
    coordinates = ["org.example:one:1.0"]
    jars = resolve(coordinates, cache=tmp_path / "cache", repositories=mirror)
    jars[0].write_bytes(jars[0].read_bytes()[:20])
    assert resolve(coordinates, cache=tmp_path / "cache", repositories=mirror) == jars
    assert zipfile.is_zipfile(jars[0])


def test_what_is_nowhere_is_named_and_leaves_no_lock_file(tmp_path: Path, mirror: Repositories) -> None:
    with pytest.raises(DevClusterError, match=r"cannot resolve org\.example:three:1\.0") as caught:
        resolve(["org.example:three:1.0"], cache=tmp_path / "cache", repositories=mirror)
    assert "not found" in caught.value.log_tail
    assert not (tmp_path / "cache" / "locks").exists()
