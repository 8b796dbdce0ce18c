"""Errors that leave for Spark: the message without frames and causes, the traceback in the log."""

from __future__ import annotations

import functools
import io
import logging
import pkgutil
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection, PythonParameters
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType
from pyspark.util import handle_worker_exception

from pyspark_rocketmq import streams
from pyspark_rocketmq.errors import ConnectError, OptionError, RocketMQError
from pyspark_rocketmq.spark.boundary import called_by_spark, called_for_batches
from pyspark_rocketmq.spark.features import SupportsTriggerAvailableNow
from pyspark_rocketmq.spark.read.batch import RocketMQBatchReader
from pyspark_rocketmq.spark.read.position_keeper import PositionKeeper
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader
from pyspark_rocketmq.spark.source import RocketMQDataSource
from pyspark_rocketmq.spark.write.writer import RocketMQBatchWriter, RocketMQStreamWriter

CALLED = (DataSource, DataSourceReader, DataSourceStreamReader, DataSourceWriter, DataSourceStreamWriter)


def test_every_class_that_spark_calls_is_decorated() -> None:
    for module in pkgutil.walk_packages(streams.__path__, "pyspark_rocketmq.streams."):
        import_module(module.name)
    ours = [
        each for base in CALLED for each in below(base) if each.__module__.startswith("pyspark_rocketmq.")
    ]
    assert len(ours) > 10
    assert [
        f"{each.__module__}.{each.__qualname__}.{name}"
        for each in ours
        if "<locals>" not in each.__qualname__
        for name, member in vars(each).items()
        if callable(member) and not name.startswith("_") and not hasattr(member, "__wrapped__")
    ] == []


def below(base: type[Any]) -> set[type[Any]]:
    return {base}.union(*map(below, base.__subclasses__()))


@called_by_spark
class Reader:
    """A reader whose every method fails."""

    @classmethod
    def name(cls) -> str:
        return "reader"

    def partitions(self) -> list[int]:
        self._deep(3)
        return []

    def read(self, _: int) -> Iterator[int]:
        yield 1
        self._deep(3)

    def defect(self) -> None:
        raise KeyError("a defect")

    def _deep(self, level: int) -> None:
        if level:
            self._deep(level - 1)
        raise ConnectError("no connection", addr="10.0.0.1:9876") from OSError("secret details")


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be one of Spark's Python workers."""
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


def sent(call: object) -> str:
    """Return what Spark's worker sends to the JVM, and so to the user."""
    out = io.BytesIO()
    try:
        call()  # type: ignore[operator]
    except Exception as error:  # noqa: BLE001 - as Spark's worker
        handle_worker_exception(error, out)
    return out.getvalue()[8:].decode()


@pytest.mark.parametrize("call", [lambda: Reader().partitions(), lambda: list(Reader().read(0))])
def test_a_worker_sends_one_line(worker: None, call: object) -> None:
    assert sent(call) == "pyspark_rocketmq.errors.ConnectError: no connection [addr=10.0.0.1:9876]\n"


def test_a_defect_keeps_its_frames(worker: None) -> None:
    assert 'raise KeyError("a defect")' in sent(Reader().defect)


def test_outside_a_worker_nothing_is_hidden_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    monkeypatch.delenv("SPARK_PYTHON_RUNTIME", raising=False)
    with pytest.raises(ConnectError) as caught:
        Reader().partitions()
    assert "raise KeyError" in sent(Reader().defect)
    shown = "".join(traceback.format_exception(caught.value))
    assert "secret details" not in shown
    assert "_deep" not in shown


@pytest.mark.parametrize("call", [lambda: Reader().partitions(), lambda: list(Reader().read(0))])
def test_the_log_has_the_whole_trace(call: object, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RocketMQError):
        call()  # type: ignore[operator]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() in {"Reader.partitions failed", "Reader.read failed"}
    for part in ("OSError: secret details", "in _deep", "ConnectError: no connection"):
        assert part in caplog.text


@called_by_spark
class StreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        raise OptionError("no offset")

    def read(self, _: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())


@pytest.mark.parametrize(("reader", "shown"), [(Reader, False), (StreamReader, True)])
def test_without_a_log_a_batch_s_trace_is_not_on_the_terminal(
    reader: type[Any], shown: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream's is: its standard error is the driver's log."""
    monkeypatch.setattr(logging.getLogger("pyspark_rocketmq"), "propagate", False)
    with pytest.raises(RocketMQError):
        reader().initialOffset() if shown else reader().partitions()
    assert ("Traceback" in capsys.readouterr().err) is shown


@pytest.mark.parametrize(
    "call",
    [
        lambda reader: reader.prepareForTriggerAvailableNow(),
        lambda reader: reader.initialOffset(),
        lambda reader: reader.latestOffset({}, None),
        lambda reader: reader.read(None),
    ],
)
def test_a_stream_reader_that_cannot_be_made_says_why_when_it_is_used(
    worker: None, call: Callable[[Any], object]
) -> None:
    """If ``streamReader`` raised, Spark's runner would raise an UnboundLocalError instead."""
    source = RocketMQDataSource(options={"nameServer": "a:1", "topic": "t", "endingOffsets": "latest"})
    reader = source.streamReader(StructType())
    reader.stop()
    assert sent(lambda: call(reader)).startswith(
        "pyspark_rocketmq.errors.OptionError: endingOffsets bounds a"
    )


def test_rows_come_as_before() -> None:
    assert next(Reader().read(0)) == 1
    assert Reader.name() == "reader"


def test_every_method_that_spark_calls_is_covered() -> None:
    """Undecorated, a new method of Spark's interfaces would show our frames again."""
    for cls, interfaces in {
        RocketMQDataSource: (DataSource,),
        RocketMQBatchReader: (DataSourceReader,),
        PositionKeeper: (DataSourceStreamReader,),
        RocketMQStreamReader: (DataSourceStreamReader, SupportsTriggerAvailableNow),
        RocketMQBatchWriter: (DataSourceWriter,),
        RocketMQStreamWriter: (DataSourceWriter,),
    }.items():
        names = {name for interface in interfaces for name in vars(interface) if not name.startswith("_")}
        for name in names - {"name"}:
            method = getattr(cls, name)
            ours = method.__module__.startswith("pyspark_rocketmq")
            assert not ours or hasattr(method, "__wrapped__"), f"{cls.__name__}.{name}"
    with pytest.raises(OptionError) as caught:
        RocketMQDataSource(options={"topik": "x"}).schema()
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 3  # the test, the call, its raise


# --- foreachBatch -----------------------------------------------------------------------------


class Callback(ClientServerConnection):
    """py4j's connection as a JVM calls a function for foreachBatch through it."""

    def __init__(self, write: Callable[[Any, int], None]) -> None:
        self.socket = None
        self.python_parameters = PythonParameters()
        self.pool = {"p0": self}
        self._write = write

    def call(self) -> None:
        self._write(None, 0)

    def answer(self) -> str:
        """Return what py4j sends to the JVM, and so to the user."""
        return str(self._call_proxy("p0", io.BytesIO(b"call\ne\n")))


def told(name: str) -> str:
    return f"!xspyspark_rocketmq.errors.ConnectError: no connection [addr={name}]\\n\n"


def test_a_function_for_batches_leaves_one_line_through_py4j(caplog: pytest.LogCaptureFixture) -> None:
    @called_for_batches
    def write(_batch: object, _number: int) -> None:
        Reader().partitions()

    for _ in range(2):
        caplog.clear()
        assert Callback(write).answer() == told("10.0.0.1:9876")
        assert [record.getMessage().partition(".<locals>.")[2] for record in caplog.records][1:] == [
            "write failed"
        ]
        assert "in _deep" in caplog.text


def test_any_callable_may_write_batches(caplog: pytest.LogCaptureFixture) -> None:
    def fails(where: str, _batch: object, _number: int) -> None:
        raise ConnectError("no connection", addr=where)

    assert Callback(called_for_batches(functools.partial(fails, "a"))).answer() == told("a")
    assert [record.getMessage() for record in caplog.records] == ["partial failed"]


def test_a_function_that_calls_another_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    @called_for_batches
    def inner(_batch: object, _number: int) -> None:
        raise ConnectError("no connection", addr="a")

    @called_for_batches
    def outer(batch: Any, number: int) -> None:
        inner(batch, number)

    assert Callback(outer).answer() == told("a")
    assert len(caplog.records) == 1


def test_sparks_errors_leave_so_if_they_are_ours() -> None:
    def fails(text: str) -> Callable[[Any, int], None]:
        def write(_batch: object, _number: int) -> None:
            raise PySparkException(text)

        return called_for_batches(write)

    ours = "pyspark_rocketmq.errors.OptionError: unknown option topik"
    assert "Traceback" not in Callback(fails(f"[PYTHON_DATA_SOURCE_ERROR] it failed: {ours}")).answer()
    other = Callback(fails("[UNRESOLVED_COLUMN] a")).answer()
    assert "Traceback" in other
    assert "[UNRESOLVED_COLUMN] a" in other


def test_other_errors_for_batches_keep_their_frames(caplog: pytest.LogCaptureFixture) -> None:
    @called_for_batches
    def write(_batch: object, _number: int) -> None:
        raise KeyError("a defect")

    assert 'raise KeyError("a defect")' in Callback(write).answer()
    assert [record.name for record in caplog.records] == ["py4j.clientserver"]


@pytest.mark.parametrize("failure", [SystemExit, GeneratorExit, KeyboardInterrupt])
def test_a_function_for_batches_that_exits_fails_its_query(
    failure: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """Without an answer of py4j, Spark would wait for the batch for ever."""

    @called_for_batches
    def write(_batch: object, _number: int) -> None:
        raise failure(1)

    answer = Callback(write).answer()
    assert f"write ended with {failure.__name__}(1) [batch=" in answer
    assert "Traceback" not in answer
    assert "raise failure(1)" in caplog.text, "where it was"


def test_a_function_for_batches_travels_to_spark_connect(worker: None) -> None:
    @called_for_batches
    def write(_batch: object, _number: int) -> None:
        raise ConnectError("no connection", addr="a")

    there = cloudpickle.loads(cloudpickle.dumps(write))
    assert sent(lambda: there(None, 0)) == "pyspark_rocketmq.errors.ConnectError: no connection [addr=a]\n"


@pytest.mark.parametrize("own", ["", "1"])
def test_a_worker_that_goes_on_after_our_error_shows_the_trace_of_a_later_defect(
    worker: None, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    """A worker of Spark Connect runs many batches: the user's function may catch our error."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", own)

    @called_for_batches
    def write(_batch: object, number: int) -> None:
        if number:
            raise KeyError("a defect")
        raise ConnectError("no connection", addr="a")

    with pytest.raises(ConnectError):
        write(None, 0)  # type: ignore[arg-type]
    shown = sent(lambda: write(None, 1))  # type: ignore[arg-type]
    assert ('raise KeyError("a defect")' in shown) is (own == "")
