"""The boundary to Spark: this package's errors leave it with their message, without its frames.

Spark shows the user the text that its Python worker sends: a traceback of the worker's frames, ours, and
those of every cause, with the message last. Of these, only the message helps. The full traceback goes to the
log.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TypeVar

from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.spark.causes import find_own_error
from pyspark_rocketmq.spark.features import SupportsTriggerAvailableNow

__all__ = ["called_by_spark", "called_for_batches"]

C = TypeVar("C", bound=type[Any])
BatchFunction = Callable[[DataFrame, int], None]

_LOG: Final = logging.getLogger(__name__)

# Facts (PySpark 4.0 to 4.3): all workers have SPARK_PYTHON_RUNTIME=PYTHON_WORKER. `handle_worker_exception`
# sends only the exception's line if SPARK_HIDE_TRACEBACK is set, and the worker ends after it. A worker whose
# output Spark logs (spark.sql.pyspark.worker.logging.enabled) has a handler at the root logger.
_RUNTIME: Final = ("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
_HIDDEN_HERE: Final = __name__
"""The variable's value if this module has set it; any text does."""

# Facts (py4j 0.10.9, `_call_proxy`): without Connect, py4j calls a function for foreachBatch in the driver's
# Python. It logs what the function raises, and then sends `traceback.format_exc()` to the JVM, with frames of
# py4j and PySpark. After what is no Exception it sends nothing: the thread ends, and Spark waits.
_CALLBACKS: Final = ("py4j.clientserver", "py4j.java_gateway")


class _Leaving(threading.local):
    """The error that leaves a function for foreachBatch in this thread."""

    error: BaseException | None = None


_leaving: Final = _Leaving()


def called_by_spark(cls: C) -> C:
    """Decorate a class whose public methods Spark calls: its errors have no frames for the user.

    This covers ``RocketMQError`` from a call, and from the iterator that a call returns. Other errors, which
    are defects, keep their traceback.
    """
    for name, member in list(vars(cls).items()):
        if callable(member) and not name.startswith("_") and not isinstance(member, type):
            wrap = _deferring if name == "streamReader" else _without_frames
            setattr(cls, name, wrap(member))
    return cls


def called_for_batches(write: BatchFunction) -> BatchFunction:
    """Decorate a function for ``foreachBatch``: errors of this package have no frames for the user.

    This includes those that Spark raises again, from a task of a query that the function runs.
    """

    @functools.wraps(write)
    def call(batch: DataFrame, batch_id: int) -> None:
        _write_batch(write, batch, batch_id)

    return call


def _write_batch(write: BatchFunction, batch: DataFrame, batch_id: int) -> None:
    """Not part of the closure, which Spark Connect pickles."""
    if os.environ.get(_HIDE_TRACEBACK) == _HIDDEN_HERE:  # an earlier error was caught
        os.environ.pop(_HIDE_TRACEBACK, None)
    try:
        _call(write, batch, batch_id)
    except (RocketMQError, PySparkException) as error:
        if not isinstance(error, RocketMQError) and find_own_error(str(error)) is None:
            raise
        if error is _leaving.error:  # of a decorated function that this one calls
            raise error.with_traceback(None) from None
        for logger in _CALLBACKS:  # a filter is added once
            logging.getLogger(logger).addFilter(_strip_frames)
        _leaving.error = error
        _leave(error, _name_of(write), _level(streaming=_is_worker()))


def _call(write: BatchFunction, batch: DataFrame, batch_id: int) -> None:
    try:
        write(batch, batch_id)
    except Exception:
        raise
    except BaseException as error:  # sys.exit(), say: py4j would not answer, and the query would hang
        raise RocketMQError(f"{_name_of(write)} ended with {error!r}", batch=batch_id) from error


def _name_of(write: BatchFunction) -> str:
    """Return the name of a function; some callables have none."""
    return str(getattr(write, "__qualname__", type(write).__name__))


def _strip_frames(record: logging.LogRecord) -> bool:
    """Remove the frames of the error that leaves, between py4j's log record and py4j's answer to Spark."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None or error is not _leaving.error:
        return True
    _leaving.error = None
    error.__traceback__ = None
    return False  # the traceback is in this module's log


def _without_frames(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = method(*args, **kwargs)
        except RocketMQError as error:
            _leave(error, method.__qualname__, _level_of(args[0]))
        return _iterate(result, method.__qualname__, args[0]) if isinstance(result, Iterator) else result

    return call


def _deferring(stream_reader: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reader that raises the error, instead of raising it.

    Spark's runner of stream readers (4.0 to 4.3) stops the reader after any error, also if it got none: the
    user would see an UnboundLocalError.
    """

    @functools.wraps(stream_reader)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return stream_reader(*args, **kwargs)
        except RocketMQError as error:
            return _RefusedReader(error)

    return call


def _iterate(rows: Iterator[Any], where: str, called: object) -> Iterator[Any]:
    try:
        yield from rows
    except RocketMQError as error:
        _leave(error, where, _level_of(called))


def _leave(error: RocketMQError | PySparkException, where: str, level: int) -> NoReturn:
    """Raise the error without its traceback and causes, after logging them.

    Raises
    ------
    RocketMQError, PySparkException
        The error.
    """
    _LOG.log(level, "%s failed", where, exc_info=error)
    if _is_worker() and not os.environ.get(_HIDE_TRACEBACK):
        # The worker ends with this error, unless a user's function for foreachBatch catches it. Under Spark
        # Connect such a worker runs further batches: `_write_batch` removes the variable.
        os.environ[_HIDE_TRACEBACK] = _HIDDEN_HERE
    raise error.with_traceback(None) from None


def _is_worker() -> bool:
    name, value = _RUNTIME
    return os.environ.get(name) == value


def _level_of(called: object) -> int:
    return _level(streaming=isinstance(called, DataSourceStreamReader))


def _level(*, streaming: bool) -> int:
    """Return the level of the traceback in the log.

    A task's standard error is its executor's log. That of a process that Spark starts for a streaming query
    is the driver's, where Spark reports the failure of the query, too. Another process without handlers would
    write to the driver's standard error, which is often the user's terminal: the traceback stays hidden.
    """
    has_log = _LOG.hasHandlers() or TaskContext.get() is not None
    return logging.ERROR if has_log or streaming else logging.DEBUG


@called_by_spark
class _RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader that cannot be created: every call raises the reason."""

    def __init__(self, error: RocketMQError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        """Raise the error."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> NoReturn:
        """Raise the error."""
        raise self._error

    def getDefaultReadLimit(self) -> NoReturn:
        """Raise the error."""
        raise self._error

    def latestOffset(self, *asked: Any, **named: Any) -> NoReturn:  # noqa: ARG002
        """Raise the error, with the arguments of any Spark release."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:  # noqa: ARG002
        """Raise the error."""
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:  # noqa: ARG002
        """Raise the error."""
        raise self._error
