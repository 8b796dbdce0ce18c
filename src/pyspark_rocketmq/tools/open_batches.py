"""List and give up batches of committed ranges that were begun and never committed, outside Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.client.commits.commit_log import CommitLog, require_commit_queue
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import Guarantee, SinkOptions
from pyspark_rocketmq.options.choices import Visibility
from pyspark_rocketmq.planning.commits.visible import find_open
from pyspark_rocketmq.spark.write.committed.range_commits import RangeCommits
from pyspark_rocketmq.spark.write.transaction_log import TransactionName

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["OpenBatch", "find_open_batches", "give_up"]

_OUTAGE_MS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBatch:
    """A batch that is neither committed nor aborted, and when its first task began (ms since the epoch)."""

    owner: str
    number: int
    begun_at_ms: int


def find_open_batches(client: Client, commit_topic: str) -> tuple[OpenBatch, ...]:
    """Return the open batches of a commit topic, oldest first.

    Raises
    ------
    OptionError, RocketMQError
        The topic does not exist, is no commit topic, or cannot be read.
    """
    queue = require_commit_queue(client, commit_topic)
    begin, end = client.min_offsets([queue])[queue], client.max_offsets([queue])[queue]
    found: dict[tuple[str, int], int] = {}
    for entry in find_open(CommitLog(client, queue).entries(begin, end)):
        found.setdefault((entry.record.owner, entry.record.number), entry.stored_at_ms)
    return tuple(
        OpenBatch(owner=owner, number=number, begun_at_ms=at) for (owner, number), at in found.items()
    )


def give_up(client: Client, commit_topic: str, batch: OpenBatch) -> bool:
    """Decide that a batch has no rows, and return whether that is so: False if it was committed meanwhile.

    A query that continues with this batch does not write it: its rows are lost.

    Parameters
    ----------
    client : Client
    commit_topic : str
    batch : OpenBatch

    Raises
    ------
    OptionError
        The owner has another form than those of this package.
    RocketMQError
        The broker does not answer.
    """
    topic, slash, owner = batch.owner.partition("/")
    if not slash or not owner:
        raise OptionError("another program wrote this batch: only it knows how it is given up", query=topic)
    options = SinkOptions(
        client=client.options,
        topic=topic,
        guarantee=Guarantee.TRANSACTIONAL,
        transaction_visibility=Visibility.COMMITTED,
        commit_topic=commit_topic,
        outage_timeout_ms=_OUTAGE_MS,
    )
    return RangeCommits(client, options).give_up(TransactionName(owner, batch.number))
