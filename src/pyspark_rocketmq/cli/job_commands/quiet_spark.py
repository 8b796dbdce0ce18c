"""Spark as a guest of the command line: its log in a file, its errors in one line, Ctrl-C without traces."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from pyspark_rocketmq.cli.printing import print_json
from pyspark_rocketmq.errors import OptionError, RocketMQError, SqlError
from pyspark_rocketmq.spark.causes import find_cause

if TYPE_CHECKING:
    from pyspark_rocketmq.spark.monitor.input_counts import InputCounts
    from pyspark_rocketmq.spark.monitor.written_rows import WrittenRows

__all__ = [
    "announce_spark",
    "describe_error",
    "print_counts",
    "print_written",
    "quiet_spark",
    "stop_on_interrupt",
]

_STDERR: Final = 2
_CONTEXT_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's loggers of every error that Spark raises, with Java's trace as one line of JSON."""
_OWNED_JVM: Final = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, whose JVM is running already and keeps its own log."""


@contextlib.contextmanager
def quiet_spark() -> Iterator[None]:
    """Write Spark's log to a file while the block runs.

    The file is kept if the block fails; the error names it. spark-submit's Spark keeps its log.

    Raises
    ------
    RocketMQError
        Spark or py4j failed. The error has the line that names the cause.
    """
    with contextlib.ExitStack() as quiet:
        quiet.enter_context(_quiet_loggers())
        keeps_its_log = _OWNED_JVM in os.environ or _descriptor(sys.__stderr__) != _STDERR
        log = None if keeps_its_log else quiet.enter_context(_stderr_to_file())
        kept = False
        try:
            yield
        except (PySparkException, Py4JError) as error:
            kept = log is not None
            raise RocketMQError(describe_error(error), sparkLog=log) from error
        except RocketMQError as error:
            # Of a mistake of the user's, Spark's log says nothing.
            kept = log is not None and not isinstance(error, OptionError | SqlError)
            if kept:
                error.facts["sparkLog"] = log
            raise
        finally:
            if log is not None and not kept:
                log.unlink(missing_ok=True)


def announce_spark() -> None:
    """Say that Spark starts, which takes some seconds."""
    print("starting Spark…", file=sys.stderr, flush=True)


def print_counts(counts: InputCounts, *, json: bool = False) -> None:
    """Print what each ended query has read: a line on standard error, or JSON on standard output."""
    for count in counts.ended():
        if json:
            print_json({"query": count.name, "rowsRead": count.rows, "batches": count.batches})
        else:
            batches = "1 batch" if count.batches == 1 else f"{count.batches:,} batches"
            print(f"{count.name or 'query'}: {count.rows:,} rows read in {batches}", file=sys.stderr)


def print_written(written: Iterable[WrittenRows], *, json: bool = False) -> None:
    """Print what each batch write has written: a line on standard error, or JSON on standard output."""
    for each in written:
        if json:
            print_json({"table": each.table, "rowsWritten": each.rows})
        elif each.rows is not None:
            rows = "1 row" if each.rows == 1 else f"{each.rows:,} rows"
            print(f"{each.table}: {rows} written", file=sys.stderr)


def describe_error(error: BaseException) -> str:
    """Return the line of an error of Spark that names its cause."""
    return find_cause(str(error)) or type(error).__name__


def stop_on_interrupt() -> None:
    """Make Ctrl-C raise KeyboardInterrupt only, as SIGTERM does in every command.

    PySpark's own handler also cancels all jobs, which makes running queries fail before they are stopped.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def _quiet_loggers() -> Iterator[None]:
    """Silence the reports of PySpark and py4j about errors, which are raised anyway, and about Ctrl-C."""
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    reports = [PySparkLogger.getLogger(name) for name in _CONTEXT_LOGGERS]
    level = py4j.level
    root.addFilter(_is_not_of_py4j)
    py4j.setLevel(logging.CRITICAL)
    for report in reports:
        report.disabled = True
    try:
        yield
    finally:
        root.removeFilter(_is_not_of_py4j)
        py4j.setLevel(level)
        for report in reports:
            report.disabled = False


@contextlib.contextmanager
def _stderr_to_file() -> Iterator[Path]:
    """Redirect the standard error of child processes; Python's own stays where it is."""
    descriptor, name = tempfile.mkstemp(prefix="pyspark-rocketmq-", suffix="-spark.log")
    before, stream = os.dup(_STDERR), sys.stderr
    try:
        if _descriptor(stream) == _STDERR:
            sys.stderr = os.fdopen(os.dup(before), "w", buffering=1, errors="backslashreplace")
        os.dup2(descriptor, _STDERR)
        yield Path(name)
    finally:
        os.dup2(before, _STDERR)
        os.close(before)
        os.close(descriptor)
        if sys.stderr is not stream:
            sys.stderr.close()
            sys.stderr = stream


def _descriptor(stream: TextIO | None) -> int | None:
    """Return a stream's descriptor. A closed stream, a test's and a notebook's have none."""
    try:
        return None if stream is None else stream.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Hide what py4j writes to the root logger if Ctrl-C interrupts a call."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname
