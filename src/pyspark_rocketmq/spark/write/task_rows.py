"""The rows of a write task, whose end is checked: it may be an early one, of rows that failed."""

# Facts (PySpark 4.0 to 4.3): a task's rows are an Arrow stream from the connection that the worker's function
# `main` has as its argument `infile`. Spark closes the connection (`shutdownOutput`) if the rows fail, by an
# expression or function before the write, and if it ends the task, of a canceled job or of an attempt that
# another one has overtaken. pyarrow takes the end of a connection between two record batches for the end of
# the stream.

from __future__ import annotations

import inspect
import selectors
import socket
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark_rocketmq.errors import SendError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["all_rows"]


def all_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the rows of the running task, and check at their end that they are all.

    Raises
    ------
    SendError
        The rows failed, Spark has ended the task, or its executor has died, before the last row.
    """
    yield from batches
    number = _connection()
    if number is not None and _is_closed(number):
        raise SendError(
            "Spark has ended the rows of the task early: they failed, or it was canceled", failed=0
        )


def _connection() -> int | None:
    """Return the file number of Spark's connection to this worker; None outside of a worker."""
    frame = inspect.currentframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name == "main" and code.co_varnames[:1] == ("infile",):
            return int(frame.f_locals["infile"].fileno())
        frame = frame.f_back
    return None


def _is_closed(number: int) -> bool:
    """Whether the other end of a connection is closed, and all that it sent is read."""
    connection = socket.socket(fileno=number)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            return bool(selector.select(0)) and not connection.recv(1, socket.MSG_PEEK)
    except ConnectionError:
        return True
    finally:
        connection.detach()  # it stays Spark's
