from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import AnalysisException

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.spark.worker_python import check_worker_python, register


class Catalog:
    def __init__(self) -> None:
        self.formats: list[str] = []

    def register(self, source: type) -> None:
        self.formats.append(source.name())


def session(python: str, files: tuple[str, ...] = ()) -> SimpleNamespace:
    utils = SimpleNamespace(**{"MODULE$": SimpleNamespace(defaultPythonExec=lambda: python)})
    jvm: Any = Mock()
    setattr(jvm.org.apache.spark.api.python, "PythonUtils$", utils)
    context = SimpleNamespace(_jvm=jvm, _python_includes=list(files))
    return SimpleNamespace(_sc=context, dataSource=Catalog())


def interpreter(folder: Path, script: str) -> tuple[str, Path]:
    """Return a stand-in for an interpreter, and the file that has a line for each of its starts."""
    program, starts = folder / "python3", folder / "starts"
    program.write_text(f"#!/bin/sh\necho start >>{starts}\n{script}\n")
    program.chmod(0o755)
    return str(program), starts


def test_an_interpreter_without_the_package_is_named_with_the_remedy(tmp_path: Path) -> None:
    python, starts = interpreter(
        tmp_path, "echo \"ModuleNotFoundError: No module named 'pyspark_rocketmq'\" >&2; exit 1"
    )
    wrong = session(python)
    for check in (check_worker_python, register, check_worker_python):
        with pytest.raises(RocketMQError) as caught:
            check(wrong)
        assert f"data sources with {python}, which lacks" in str(caught.value)
        assert "DATA_SOURCE_NOT_FOUND: ModuleNotFoundError: No module named" in str(caught.value)
        assert str(caught.value).endswith(f" PYSPARK_DRIVER_PYTHON={sys.executable}")
    assert wrong.dataSource.formats == []
    assert starts.read_text() == "start\n", "it is asked once"


def test_an_interpreter_with_the_package_is_asked_once(tmp_path: Path) -> None:
    python, starts = interpreter(tmp_path, "exit 0")
    right = session(python)
    check_worker_python(right)
    register(right)
    assert starts.read_text() == "start\n"
    assert right.dataSource.formats == ["rocketmq", "org.apache.rocketmq.spark"]


@pytest.mark.parametrize(("condition", "kept"), [("DATA_SOURCE_ALREADY_EXISTS", True), ("OTHER", False)])
def test_what_spark_has_found_by_itself_is_kept(
    monkeypatch: pytest.MonkeyPatch, condition: str, kept: bool
) -> None:
    error = AnalysisException("Data source 'rocketmq' already exists")
    monkeypatch.setattr(error, "getCondition", lambda: condition)

    def refuse(_: object) -> None:
        raise error

    spark = session(sys.executable)
    spark.dataSource.register = refuse
    with nullcontext() if kept else pytest.raises(AnalysisException):
        register(spark)


def test_this_interpreter_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = Path(sys.executable).parent
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("subprocess.run", None)
    check_worker_python(session(sys.executable))
    check_worker_python(session(Path(sys.executable).name))


def test_where_the_driver_cannot_know_nothing_is_said(tmp_path: Path) -> None:
    python, starts = interpreter(tmp_path, "exit 1")
    check_worker_python(session(python, ("pyspark_rocketmq.zip",)))  # shipped with the job
    check_worker_python(SimpleNamespace())  # Spark Connect: the server's interpreter
    check_worker_python(session("env/bin/python"))  # of an archive that only executors unpack
    assert not starts.exists()
