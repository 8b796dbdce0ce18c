"""Batches of commit topics that a crash interrupted, outside Spark.

Those that were begun and never committed are given up. Those of staged writes that are committed and not yet
in their topic are finished.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.client.commits.commit_log import CommitLog, require_commit_queue
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import SendStatus
from pyspark_rocketmq.options import Guarantee, SinkOptions
from pyspark_rocketmq.options.choices import Visibility
from pyspark_rocketmq.planning.commits.records import Appended
from pyspark_rocketmq.planning.commits.visible import find_open
from pyspark_rocketmq.spark.write.committed.range_commits import RangeCommits
from pyspark_rocketmq.spark.write.committed.staged_appends import StagedAppends
from pyspark_rocketmq.spark.write.committed.staging_topic import batch_name, options_of_tasks
from pyspark_rocketmq.spark.write.transaction_log import TransactionName

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = [
    "OpenBatch",
    "StagedBatch",
    "StagedTopics",
    "append",
    "find_open_batches",
    "find_staged_batches",
    "give_up",
]

_OUTAGE_MS: Final = 10_000
_APPEND_OUTAGE_MS: Final = 60_000


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTopics:
    """The topics of a staged write."""

    topic: str
    staging_topic: str
    commit_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatch:
    """A batch that is committed, at some time (ms since the epoch), and not known to be appended."""

    query: str
    number: int
    rows: int
    committed_at_ms: int


def find_staged_batches(client: Client, topics: StagedTopics) -> tuple[StagedBatch, ...]:
    """Return the batches that are to be appended: of each query or job at most the last one, oldest first.

    Raises
    ------
    OptionError, RocketMQError
        The commit topic does not exist, is no commit topic, or cannot be read.
    """
    queue = require_commit_queue(client, topics.commit_topic)
    log = CommitLog(client, queue)
    begin, end = client.min_offsets([queue])[queue], client.max_offsets([queue])[queue]
    entries = {entry.offset: entry for entry in log.entries(begin, end)}
    last = {commit.owner: (offset, commit) for offset, commit in log.commits(begin, end)}
    done = {
        (entry.record.owner, entry.record.number)
        for entry in entries.values()
        if isinstance(entry.record, Appended)
    }
    prefix = f"{topics.staging_topic}/{topics.topic}/"
    return tuple(
        StagedBatch(
            query=owner.removeprefix(prefix),
            number=commit.number,
            rows=commit.rows,
            committed_at_ms=entries[offset].stored_at_ms,
        )
        for owner, (offset, commit) in sorted(last.items(), key=lambda each: each[1][0])
        if owner.startswith(prefix) and commit.rows and (owner, commit.number) not in done
    )


def append(client: Client, topics: StagedTopics, batch: StagedBatch, *, skip_lost: bool = False) -> int:
    """Append what is missing of a batch, and return the number of rows sent. A query that does so fails.

    With ``skip_lost``, rows that the staging topic has lost are left out.

    Raises
    ------
    RocketMQError
        As `StagedAppends.append`.
    """
    options = SinkOptions(
        client=client.options,
        topic=topics.topic,
        guarantee=Guarantee.TRANSACTIONAL,
        transaction_visibility=Visibility.STAGED,
        staging_topic=topics.staging_topic,
        commit_topic=topics.commit_topic,
        accept_statuses=frozenset(SendStatus),
        outage_timeout_ms=_APPEND_OUTAGE_MS,
    )
    commits = RangeCommits(client, options_of_tasks(options))
    appends = StagedAppends(client, options, commits, ordered=True)
    return appends.append(batch_name(options, batch.query, batch.number), skip_lost=skip_lost)
