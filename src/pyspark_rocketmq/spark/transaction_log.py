"""What was decided about a query's batches: the record by which a commit that a crash cut short is finished.

A folder of its own for each owner (a query's id, or a batch write's ``jobId``), in it a file for each batch
whose commit has begun and is not known to be finished, and a marker for the newest one that is::

    <owner>/00000000000000000042.decision     an Arrow file: the half messages, and what else a commit needs
    <owner>/00000000000000000041.done         empty
"""

from __future__ import annotations

import json
import urllib.parse
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyarrow import fs

from pyspark_rocketmq.client.transaction import HALF_SCHEMA
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.spark.files import file_system

__all__ = ["Decision", "TransactionLog", "TransactionName"]

_VERSION: Final = "1"
_DECISION: Final = ".decision"
_DONE: Final = ".done"
_DIGITS: Final = 20


@dataclass(frozen=True, slots=True, order=True)
class TransactionName:
    """Which batch of which query, or which batch write (its number is 0)."""

    owner: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.owner}/{self.number}"

    @classmethod
    def parse(cls, text: str) -> TransactionName:
        """Read what ``str`` wrote.

        Raises
        ------
        ValueError
        """
        owner, _, number = text.rpartition("/")
        if not owner:
            raise ValueError("not a transaction's name")
        return cls(owner, int(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """That a batch is to be committed, with all that doing so needs.

    Parameters
    ----------
    name : TransactionName
    group : str
        The producer group that its half messages were sent with.
    ordered : bool
        Whether the messages of a queue keep their order.
    since : Mapping
        How long the queues were, where the messages will be, before the first commit.
    halves : pyarrow.Table
    """

    name: TransactionName
    group: str
    ordered: bool
    since: Mapping[MessageQueue, int]
    halves: pa.Table


class TransactionLog:
    """The decisions in one folder, which the driver's processes can write; executors never look at it.

    Parameters
    ----------
    folder : str
        A path, or a URI that Arrow opens (``hdfs://``, ``s3://``, ``gs://``, ``file://``).

    Raises
    ------
    OptionError
        Arrow cannot open it.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        try:
            self._fs, self._root = file_system(folder)
        except (pa.ArrowInvalid, OSError) as error:
            raise OptionError(
                f"the folder of transactions cannot be opened: {error}; set transactionLog to a path or URI "
                "that Arrow opens",
                option="transactionLog",
            ) from error

    def owners(self) -> tuple[str, ...]:
        """Return who has written here, sorted."""
        names = (info.base_name for info in self._list(self._root) if info.type is fs.FileType.Directory)
        return tuple(sorted(urllib.parse.unquote(name) for name in names))

    def newest_done(self, owner: str) -> int | None:
        """Return the number of the newest batch whose commit is finished."""
        return max(self._numbers(owner, _DONE), default=None)

    def undone(self, owner: str) -> tuple[int, ...]:
        """Return the numbers of the batches whose commit has begun and is not known to be finished."""
        done = self.newest_done(owner)
        found = self._numbers(owner, _DECISION)
        return tuple(sorted(number for number in found if done is None or number > done))

    def decide(self, decision: Decision) -> None:
        """Note that a batch is to be committed: from when this returns on, a crash does not change it."""
        folder = self._folder(decision.name.owner)
        self._fs.create_dir(folder, recursive=True)
        meta = {
            "version": _VERSION,
            "group": decision.group,
            "ordered": json.dumps(decision.ordered),
            "since": json.dumps([[*_queue_key(queue), offset] for queue, offset in decision.since.items()]),
        }
        hidden = f"{folder}/.{uuid.uuid4().hex}"
        table = decision.halves.replace_schema_metadata(meta)
        with (
            self._fs.open_output_stream(hidden) as stream,
            pa.ipc.new_file(stream, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as file,
        ):
            file.write_table(table)
        self._fs.move(hidden, self._file(decision.name, _DECISION))

    def read(self, name: TransactionName) -> Decision:
        """Return a decision.

        Raises
        ------
        RocketMQError
            The file is damaged, or of another release.
        """
        path = self._file(name, _DECISION)
        try:
            with self._fs.open_input_file(path) as stream:
                table = pa.ipc.open_file(stream).read_all()
            meta = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
            if meta.get("version") != _VERSION:
                raise RocketMQError("another release wrote this decision", path=path)
            return Decision(
                name=name,
                group=meta["group"],
                ordered=json.loads(meta["ordered"]),
                since={MessageQueue(t, b, q): offset for t, b, q, offset in json.loads(meta["since"])},
                halves=table.replace_schema_metadata().cast(HALF_SCHEMA),
            )
        except (pa.ArrowInvalid, OSError, KeyError, ValueError) as error:
            raise RocketMQError(f"a decision cannot be read: {error}", path=path) from error

    def finish(self, name: TransactionName) -> None:
        """Note that a batch's commit is finished; what is older is of no use any more."""
        folder = self._folder(name.owner)
        self._fs.create_dir(folder, recursive=True)
        with self._fs.open_output_stream(self._file(name, _DONE)):
            pass
        for suffix, newest in ((_DECISION, name.number), (_DONE, name.number - 1)):
            for number in self._numbers(name.owner, suffix):
                if number <= newest:
                    self._fs.delete_file(self._file(TransactionName(name.owner, number), suffix))

    def _list(self, folder: str) -> list[fs.FileInfo]:
        return list(self._fs.get_file_info(fs.FileSelector(folder, allow_not_found=True)))

    def _numbers(self, owner: str, suffix: str) -> list[int]:
        names = (info.base_name for info in self._list(self._folder(owner)))
        return [int(name.removesuffix(suffix)) for name in names if name.endswith(suffix)]

    def _folder(self, owner: str) -> str:
        return f"{self._root}/{urllib.parse.quote(owner, safe='')}"

    def _file(self, name: TransactionName, suffix: str) -> str:
        return f"{self._folder(name.owner)}/{name.number:0{_DIGITS}d}{suffix}"


def _queue_key(queue: MessageQueue) -> tuple[str, str, int]:
    """Return what JSON takes of a queue."""
    return queue.topic, queue.broker_name, queue.queue_id
