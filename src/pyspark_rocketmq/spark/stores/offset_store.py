"""Stores that keep a job's offsets with its results."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pyspark_rocketmq.errors import DataLossError, OptionError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.model.nested_offsets import flatten, nest
from pyspark_rocketmq.planning.batch_replay import BatchId, StoredProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "FileTransaction",
    "HadoopFileOffsetStore",
    "OffsetStore",
    "StoreTransaction",
    "decode_progress",
    "encode_progress",
]

H = TypeVar("H")

_VERSION: Final = 1


class StoreTransaction(ABC, Generic[H]):
    """One transaction of a store. Leaving it without an error commits it, an error rolls it back.

    The user's function writes its rows with ``handle``, such as a database connection.
    """

    handle: H

    @abstractmethod
    def progress(self) -> StoredProgress:
        """Return the store's state, as this transaction sees it."""

    @abstractmethod
    def advance(self, before: StoredProgress, batch: BatchId, ranges: Sequence[OffsetRange]) -> None:
        """Set the end of each range, and the batch.

        Raises
        ------
        DataLossError
            The store is no longer at ``before``: another writer uses the same name.
        """


class OffsetStore(ABC, Generic[H]):
    """Keeps the next offset of each queue for one job, together with the job's results.

    A database writes both in one transaction (`SqlOffsetStore`): exactly once. A store that is separate from
    the results is written after them: at least once, or exactly once if the results are written idempotently.

    To write a store, subclass it and implement `transaction`.
    """

    @abstractmethod
    def transaction(self) -> AbstractContextManager[StoreTransaction[H]]:
        """Begin a transaction."""

    def offsets(self) -> Mapping[MessageQueue, int]:
        """Return the next offset of each queue; empty before the first batch."""
        with self.transaction() as transaction:
            return transaction.progress().offsets

    def starting_offsets(self, default: str = "earliest") -> str:
        """Return the stored offsets as a value of the option ``startingOffsets``.

        A new query (with a new checkpoint) that starts there continues exactly after the last stored batch.
        Set ``startingOffsetsDefault`` for queues that were added later.

        Parameters
        ----------
        default : str
            The value to return before the first batch.
        """
        offsets = self.offsets()
        return json.dumps(nest(offsets)) if offsets else default


class HadoopFileOffsetStore(OffsetStore[None]):
    """Offsets in a small file on any path that Hadoop supports. The file is replaced atomically.

    Classic Spark only (not Connect). The file is not part of a transaction with the rows: it is written after
    them. A second query with the same path is detected when the file is written; the later one stops. File
    systems cannot compare and replace atomically, so if two queries write at the same time, only the last
    one's offsets may remain.

    Parameters
    ----------
    spark : SparkSession
    path : str
        Path of the file, such as ``"hdfs://namenode/jobs/orders.offsets"``.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = getattr(spark, "_jvm", None)
        if jvm is None:
            raise OptionError("a file on a Hadoop path needs classic Spark")
        self._jvm = jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        self._path = self._hadoop.Path(path)
        self._temporary = self._hadoop.Path(f"{path}.new")
        self._configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - as PySpark accesses Hadoop
        self._new_array = spark.sparkContext._gateway.new_array  # type: ignore[union-attr]  # noqa: SLF001

    @contextmanager
    def transaction(self) -> Iterator[StoreTransaction[None]]:
        """Begin a transaction. The file is replaced at its end."""
        transaction = FileTransaction(self._read)
        yield transaction
        if transaction.after is not None:
            transaction.check()
            self._write(transaction.after)

    def _read(self) -> StoredProgress:
        files = self._path.getFileSystem(self._configuration)
        if not files.exists(self._path):
            return StoredProgress()
        stream = files.open(self._path)
        try:
            return decode_progress(str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")))
        finally:
            stream.close()

    def _write(self, progress: StoredProgress) -> None:
        files = self._path.getFileSystem(self._configuration)
        stream = files.create(self._temporary, True)
        try:
            stream.write(bytearray(encode_progress(progress).encode()))
        finally:
            stream.close()
        # On HDFS, FileSystem.rename does not replace a file; FileContext.rename does so atomically.
        rename = getattr(self._hadoop, "Options$Rename")
        options = self._new_array(rename, 1)
        options[0] = rename.OVERWRITE
        context = self._hadoop.FileContext.getFileContext(files.getUri(), self._configuration)
        context.rename(self._temporary, self._path, options)


class FileTransaction(StoreTransaction[None]):
    """The file's content after a transaction.

    Parameters
    ----------
    read : Callable
        Returns the current content of the file.
    """

    def __init__(self, read: Callable[[], StoredProgress]) -> None:
        self.handle = None
        self.after: StoredProgress | None = None
        self._read = read
        self._before = read()

    def progress(self) -> StoredProgress:
        """Return the file's content at the start of the transaction."""
        return self._before

    def advance(self, before: StoredProgress, batch: BatchId, ranges: Sequence[OffsetRange]) -> None:
        """Set the file's new content; see `StoreTransaction.advance`."""
        self._before = before
        self.check()
        moved = {offsets.queue: offsets.until_offset for offsets in ranges}
        self.after = StoredProgress({**before.offsets, **moved}, batch)

    def check(self) -> None:
        """Raise if the file's content has changed since the start of the transaction.

        Raises
        ------
        DataLossError
            ``BATCH_OVERLAPS``.
        """
        found = self._read()
        if found != self._before:
            raise DataLossError(
                "the stored offsets changed during the batch: another query writes to the same file; give "
                "each query a separate path",
                condition="BATCH_OVERLAPS",
                stored=found.batch,
                expected=self._before.batch,
            )


def encode_progress(progress: StoredProgress) -> str:
    """Return the content of the file of a `HadoopFileOffsetStore`."""
    document: dict[str, Any] = {"version": _VERSION, "offsets": nest(progress.offsets)}
    if progress.batch is not None:
        document |= {"queryId": progress.batch.query_id, "batch": progress.batch.number}
    return json.dumps(document)


def decode_progress(text: str) -> StoredProgress:
    """Parse the content of the file of a `HadoopFileOffsetStore`.

    Raises
    ------
    OptionError
        Another release wrote the file.
    """
    document = json.loads(text)
    if document.get("version") != _VERSION:
        raise OptionError(f"the file holds offsets of version {document.get('version')!r}, not {_VERSION}")
    offsets = {queue: int(offset) for queue, offset in flatten(document["offsets"]).items()}
    batch = BatchId(document["queryId"], document["batch"]) if "queryId" in document else None
    return StoredProgress(offsets, batch)
