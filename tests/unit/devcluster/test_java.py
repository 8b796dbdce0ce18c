from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_rocketmq.devcluster.java import find_java
from pyspark_rocketmq.errors import DevClusterError


def _fake_java(home: Path, version_line: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "25-ea" 2025-09-16', 25),
    ],
)
def test_java_home_decides(tmp_path: Path, line: str, version: int) -> None:
    program = _fake_java(tmp_path, line)
    java = find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    assert (java.executable, java.version) == (program, version)


@pytest.mark.parametrize(
    ("line", "found"),
    [('openjdk version "11.0.22" 2024-01-16', "Java 11"), ('java version "1.8.0_392"', "Java 8")],
)
def test_an_old_java_is_named_with_what_is_needed(tmp_path: Path, line: str, found: str) -> None:
    program = _fake_java(tmp_path, line)
    with pytest.raises(
        DevClusterError, match=f"found {found}, but 17 or newer is needed.*JAVA_HOME"
    ) as caught:
        find_java({"PATH": str(program.parent)})
    assert caught.value.facts["java"] == program


def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(DevClusterError, match="no Java found: install a JDK 17"):
        find_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java(tmp_path: Path) -> None:
    with pytest.raises(DevClusterError, match="JAVA_HOME has no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_a_program_that_is_no_java(tmp_path: Path) -> None:
    _fake_java(tmp_path, "hello")
    with pytest.raises(DevClusterError, match="does not tell its version") as caught:
        find_java({"JAVA_HOME": str(tmp_path)})
    assert caught.value.log_tail == "hello\n"
