"""The log of decisions about a query's batches. A commit that a crash interrupted is completed from it.

Each owner (a query's id, or the topic and ``jobId`` of a batch write) has a separate folder with a file for
each batch whose commit has begun and is not known to be finished, a marker for the newest finished batch, and
one for the process that may commit::

    <owner>/00000000000000000042.<claim>.decision    an Arrow file: the half messages, and what a commit needs
    <owner>/00000000000000000041.done                empty
    <owner>/<claim>.claim                            empty; a claim is a number and a random part

Of several claims, the highest is valid. Of several decisions about a batch, that of the highest claim is
valid: the processes that wrote the others had lost their claim before they could act on them.
"""

from __future__ import annotations

import contextlib
import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyarrow import fs

from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host
from pyspark_rocketmq.client.send.half_messages import HALF_SCHEMA
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.spark.filesystem import file_errors, file_system, write_durably

__all__ = ["Decision", "TransactionLog", "TransactionName", "require_checkpoint"]

_VERSION: Final = "1"
_DECISION: Final = ".decision"
_DONE: Final = ".done"
_CLAIM: Final = ".claim"
_DIGITS: Final = 20


@dataclass(frozen=True, slots=True, order=True)
class TransactionName:
    """A batch of a query or job, or a batch write (with number 0)."""

    owner: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.owner}/{self.number}"

    @classmethod
    def parse(cls, text: str) -> TransactionName:
        """Parse the result of ``str``.

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
    """The decision to commit a batch, with everything that the commit needs.

    Parameters
    ----------
    name : TransactionName
    group : str
        The producer group of its half messages.
    ordered : bool
        Whether messages of a queue must keep their order.
    since : Mapping
        The lengths of the destination queues before the first commit.
    halves : pyarrow.Table
    """

    name: TransactionName
    group: str
    ordered: bool
    since: Mapping[MessageQueue, int]
    halves: pa.Table


class TransactionLog:
    """The decisions in one folder, which the driver's processes can write. Executors do not use it.

    Every method raises `RocketMQError` if the file system fails.

    Parameters
    ----------
    folder : str
        A path, or a URI that Arrow opens (``hdfs://``, ``s3://``, ``gs://``, ``file://``).
    host : Host
        Gives the random part of claims.

    Raises
    ------
    OptionError
        Arrow cannot open the folder.
    """

    def __init__(self, folder: str, *, host: Host = SYSTEM_HOST) -> None:
        self.folder = folder
        self._host = host
        try:
            self._fs, self._root = file_system(folder)
        except (pa.ArrowInvalid, OSError) as error:
            raise OptionError(
                f"the folder of transactions cannot be opened: {error}; set transactionLog to a path or URI "
                "that Arrow opens",
                option="transactionLog",
            ) from error

    def owners(self) -> tuple[str, ...]:
        """Return the owners in the folder, sorted."""
        names = (info.base_name for info in self._list(self._root) if info.type is fs.FileType.Directory)
        return tuple(sorted(urllib.parse.unquote(name) for name in names))

    # --- who may commit ---

    def claim(self, owner: str) -> str:
        """Take the right to commit an owner's batches from its current holder; return the claim."""
        newest = self.newest_claim(owner)
        number = 0 if newest is None else int(newest.partition("-")[0])
        claim = f"{number + 1:0{_DIGITS}d}-{self._host.random_bytes(16).hex()}"
        with self._explain():
            write_durably(
                self._fs, f"{self._folder(owner)}/{claim}{_CLAIM}"
            )  # including the folder, if it is new
        for lower in (name for name in self._names(owner, _CLAIM) if name < claim):
            self._delete(owner, lower + _CLAIM)
        return claim

    def newest_claim(self, owner: str) -> str | None:
        """Return the valid claim."""
        return max(self._names(owner, _CLAIM), default=None)

    # --- what was decided ---

    def newest_done(self, owner: str) -> int | None:
        """Return the number of the newest batch whose commit is finished."""
        return max(self._numbers(owner, _DONE), default=None)

    def undone(self, owner: str) -> tuple[int, ...]:
        """Return the numbers of the batches whose commit has begun and is not known to be finished."""
        done = self.newest_done(owner)
        found = set(self._numbers(owner, _DECISION))
        return tuple(sorted(number for number in found if done is None or number > done))

    def decide(self, decision: Decision, claim: str) -> None:
        """Write the decision to commit a batch. When this returns, the decision survives crashes."""
        meta = {
            "version": _VERSION,
            "group": decision.group,
            "ordered": json.dumps(decision.ordered),
            "since": json.dumps([[*_queue_key(queue), offset] for queue, offset in decision.since.items()]),
        }
        table = decision.halves.replace_schema_metadata(meta)
        lz4 = pa.ipc.IpcWriteOptions(compression="lz4")

        def write(stream: pa.NativeFile) -> None:
            with pa.ipc.new_file(stream, table.schema, options=lz4) as file:
                file.write_table(table)

        folder = self._folder(decision.name.owner)
        with self._explain():
            write_durably(self._fs, f"{folder}/{_number(decision.name)}.{claim}{_DECISION}", write)

    def read(self, name: TransactionName) -> Decision:
        """Return the valid decision about a batch.

        Raises
        ------
        RocketMQError
            The file is damaged, of another release, or missing.
        """
        found = [each for each in self._names(name.owner, _DECISION) if _number_in(each) == name.number]
        newest = max(found, key=_claim_in, default=_number(name))
        path = f"{self._folder(name.owner)}/{newest}{_DECISION}"
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
        """Record that a batch's commit is finished, and delete older files."""
        done = f"{self._folder(name.owner)}/{_number(name)}{_DONE}"
        with self._explain():
            write_durably(self._fs, done)  # durable before the files that it replaces are deleted
        for suffix, newest in ((_DECISION, name.number), (_DONE, name.number - 1)):
            for each in self._names(name.owner, suffix):
                if _number_in(each) <= newest:
                    self._delete(name.owner, each + suffix)

    # --- files ---

    def _explain(self) -> contextlib.AbstractContextManager[None]:
        return file_errors("the folder of transactions cannot be read or written", folder=self.folder)

    def _list(self, folder: str) -> list[fs.FileInfo]:
        with self._explain():
            return list(self._fs.get_file_info(fs.FileSelector(folder, allow_not_found=True)))

    def _names(self, owner: str, suffix: str) -> list[str]:
        """Return the names of an owner's files of a kind, without the suffix."""
        names = (info.base_name for info in self._list(self._folder(owner)))
        return [name.removesuffix(suffix) for name in names if name.endswith(suffix)]

    def _numbers(self, owner: str, suffix: str) -> list[int]:
        return [_number_in(name) for name in self._names(owner, suffix)]

    def _delete(self, owner: str, name: str) -> None:
        """Delete a file, which another process may have deleted."""
        with self._explain(), contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(f"{self._folder(owner)}/{name}")

    def _folder(self, owner: str) -> str:
        name = urllib.parse.quote(owner, safe="")
        if name in {".", ".."}:  # which are other folders
            name = name.replace(".", "%2E")
        return f"{self._root}/{name}"


def require_checkpoint(location: str, query_id: str) -> None:
    """Check that Spark's checkpoint of a query is at the expected path.

    A path without a scheme is on the local disk here, but on Hadoop's default file system in Spark.

    Raises
    ------
    OptionError
        The checkpoint is elsewhere.
    """
    try:
        files, path = file_system(location.rstrip("/"))
        with files.open_input_file(f"{path}/metadata") as stream:
            found = json.loads(stream.read())["id"]
        reason = f"the checkpoint there is that of the query {found}"
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        found, reason = None, str(error)
    if found != query_id:
        raise OptionError(
            "the transactions of a query must be noted where its checkpoint is, and that is not at "
            f"{location!r} ({reason}): give checkpointLocation with its scheme, such as hdfs:// or file://, "
            "or set transactionLog to a folder that every driver of this query can open",
            option="checkpointLocation",
            query=query_id,
        )


def _number(name: TransactionName) -> str:
    return f"{name.number:0{_DIGITS}d}"


def _number_in(file_name: str) -> int:
    return int(file_name.partition(".")[0])


def _claim_in(file_name: str) -> str:
    """Return the claim in a decision's name; decisions of releases without claims are the lowest."""
    return file_name.partition(".")[2]


def _queue_key(queue: MessageQueue) -> tuple[str, str, int]:
    """Return the JSON form of a queue."""
    return queue.topic, queue.broker_name, queue.queue_id
