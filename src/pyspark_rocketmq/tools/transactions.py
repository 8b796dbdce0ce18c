"""List and finish unfinished transactional writes outside Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyarrow import fs

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.sink import TRANSACTIONS_FOLDER
from pyspark_rocketmq.spark.filesystem import file_system
from pyspark_rocketmq.spark.write.transaction import Finished, Transactions
from pyspark_rocketmq.spark.write.transaction_log import TransactionLog, TransactionName

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["Unfinished", "open_log", "recover", "unfinished"]

_OUTAGE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A batch with a commit decision that is not known to be committed completely."""

    name: TransactionName
    group: str
    messages: int


def open_log(folder: str) -> TransactionLog:
    """Return the transaction log in a query's ``checkpointLocation``, or in a ``transactionLog``.

    Raises
    ------
    OptionError
        The folder does not exist or cannot be opened.
    """
    log = TransactionLog(folder)
    filesystem, inner = file_system(folder)
    kind = filesystem.get_file_info(inner).type
    if kind is not fs.FileType.Directory:
        what = "there is no such folder" if kind is fs.FileType.NotFound else "it is not a folder"
        raise OptionError(f"{what}: give a query's checkpointLocation or transactionLog", folder=folder)
    within = f"{inner.rstrip('/')}/{TRANSACTIONS_FOLDER}"
    if filesystem.get_file_info(within).type is fs.FileType.Directory:
        return TransactionLog(f"{folder.rstrip('/')}/{TRANSACTIONS_FOLDER}")
    return log


def unfinished(log: TransactionLog) -> tuple[Unfinished, ...]:
    """Return a log's unfinished batches.

    Raises
    ------
    RocketMQError
        A decision cannot be read.
    """
    names = (TransactionName(owner, number) for owner in log.owners() for number in log.undone(owner))
    found = ((name, log.read(name)) for name in names)
    return tuple(
        Unfinished(name=name, group=decision.group, messages=decision.halves.num_rows)
        for name, decision in found
    )


def recover(
    client: Client, log: TransactionLog, *, skip_lost: bool = False
) -> Iterator[tuple[Unfinished, Finished]]:
    """Commit the rest of each unfinished batch. Yields each batch with its outcome.

    If the query is running, it fails.

    Raises
    ------
    SendError, DataLossError, RocketMQError
        As `Transactions.finish`.
    """
    transactions = Transactions(client, log, outage_timeout_ms=_OUTAGE_MS)
    for each in unfinished(log):
        yield each, transactions.finish(each.name, skip_lost=skip_lost)
