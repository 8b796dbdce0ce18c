"""What is published: wheel and sdist, and the environment that the wheel makes."""

from __future__ import annotations

import email.message
import email.parser
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from tests.support.wheel import ROOT, Installation, build

import pyspark_rocketmq

VERSION = pyspark_rocketmq.__version__
WHEEL = f"pyspark_rocketmq-{VERSION}-py3-none-any.whl"
SDIST = f"pyspark_rocketmq-{VERSION}.tar.gz"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    assert [file.name for file in build(ROOT, folder)] == [WHEEL, SDIST]
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(tmp_path_factory.mktemp("environment") / "venv", dist / WHEEL, "spark")


def metadata(dist: Path) -> email.message.Message:
    with zipfile.ZipFile(dist / WHEEL) as wheel:
        text = wheel.read(f"pyspark_rocketmq-{VERSION}.dist-info/METADATA").decode()
    return email.parser.Parser().parsestr(text)


def test_a_second_build_has_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    again = {file.name: file.read_bytes() for file in build(ROOT, tmp_path)}
    assert again == {name: (dist / name).read_bytes() for name in (WHEEL, SDIST)}


def test_the_sdist_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(dist / SDIST) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    (wheel,) = build(tree, tmp_path / "dist", "wheel")
    assert wheel.read_bytes() == (dist / WHEEL).read_bytes()


def test_the_wheel_holds_both_packages_and_nothing_else(dist: Path) -> None:
    with zipfile.ZipFile(dist / WHEEL) as wheel:
        names = set(wheel.namelist())
        entry_points = wheel.read(f"pyspark_rocketmq-{VERSION}.dist-info/entry_points.txt").decode()
    sources = {
        file.relative_to(ROOT / "src").as_posix()
        for package in ("pyspark_rocketmq", "pyspark_rocketmq_compat")
        for file in (ROOT / "src" / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {"pyspark_rocketmq/py.typed", "pyspark_rocketmq_compat/py.typed"} <= sources
    assert {name for name in names if ".dist-info/" not in name} == sources
    assert {name.rpartition("/")[2] for name in names} >= {"LICENSE", "NOTICE"}
    assert entry_points.split("\n")[:2] == [
        "[console_scripts]",
        "pyspark-rocketmq = pyspark_rocketmq.cli:main",
    ]


def test_the_version_has_one_place(dist: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert metadata(dist)["Version"] == VERSION
    written = [
        file
        for file in (ROOT / "src").rglob("*.py")
        if re.search(rf"[\"']{re.escape(VERSION)}[\"']", file.read_text(encoding="utf-8"))
    ]
    assert [file.name for file in written] == ["_version.py"]
    assert f"({VERSION})" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("###", 1)[0]


def test_the_extras_are_those_of_the_documentation(dist: Path) -> None:
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `([a-z]+)` \|", page, re.MULTILINE))
    assert set(metadata(dist).get_all("Provides-Extra", [])) == told


def test_the_command_of_the_wheel_runs(installed: Installation, tmp_path: Path) -> None:
    where = installed.run("python", "-c", "import pyspark_rocketmq as p; print(p.__file__)", cwd=tmp_path)
    assert where.stdout.startswith(str(installed.site_packages)), where
    version = installed.run("pyspark-rocketmq", "--version", cwd=tmp_path)
    assert (version.returncode, version.stdout, version.stderr) == (0, f"{VERSION}\n", "")
    options = installed.run("pyspark-rocketmq", "options", cwd=tmp_path)
    assert options.returncode == 0, options.stderr
    assert "maxOffsetsPerTrigger" in options.stdout


def test_spark_s_look_up_finds_the_wheel_s_source(installed: Installation, tmp_path: Path) -> None:
    code = (
        "import pkgutil; "
        "print(sorted(m.name for m in pkgutil.iter_modules() if m.name.startswith('pyspark_')), "
        "__import__('pyspark_rocketmq').DefaultSource.name())"
    )
    done = installed.run("python", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "'pyspark_rocketmq', 'pyspark_rocketmq_compat'" in done.stdout
    assert done.stdout.endswith(" rocketmq\n")
