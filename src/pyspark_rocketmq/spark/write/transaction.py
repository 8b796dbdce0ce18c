"""Decides about a batch of half messages and executes the decision, also after a crash."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from pyspark_rocketmq.client.send.committed_scan import CommittedScan
from pyspark_rocketmq.client.send.half_messages import HALF_SCHEMA, Ending, end_half_messages, target_queues
from pyspark_rocketmq.errors import DataLossError, RocketMQError, SendError
from pyspark_rocketmq.offsets.queue_lookup import outlast_outage
from pyspark_rocketmq.spark.write.transaction_lease import Lease
from pyspark_rocketmq.spark.write.transaction_log import Decision, TransactionLog, TransactionName

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["Finished", "Transactions", "roll_back"]

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)

_QUIET_S: Final = 3.5
"""After this time without a new commit, no commit is pending: brokers drop commits that waited 3 s."""

_ROLLBACK_MS: Final = 10_000
"""How long a rollback is retried while no broker answers: brokers drop the remaining messages later."""


_SHOWN: Final = 10
"""Maximum number of lost messages whose ids an error names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The numbers of messages of a batch that were committed now, and that are lost."""

    committed: int
    lost: int = 0


class Transactions:
    """The batches of one log. Each batch is decided once; its commit is retried until it is complete.

    Promise: no message of an undecided batch is visible. Readers may see a part of a decided batch until
    `commit` returns, and then each message once; ``docs/guarantees.md`` lists the conditions. Of several
    processes that commit the batches of one owner, only the last one that began succeeds; the others raise.

    Parameters
    ----------
    client : Client
    log : TransactionLog
    outage_timeout_ms : int
        How long to wait for brokers that are down.
    """

    def __init__(self, client: Client, log: TransactionLog, *, outage_timeout_ms: int) -> None:
        self._client = client
        self._log = log
        self._outage_timeout_ms = outage_timeout_ms

    def commit(self, name: TransactionName, halves: pa.Table, *, group: str, ordered: bool) -> bool:
        """Make a batch visible: this one, or the one that was decided before under the same name.

        Returns whether it is this one. If it is not, or has no half messages, this is False.

        Parameters
        ----------
        name : TransactionName
        halves : pyarrow.Table
        group : str
        ordered : bool
            Whether messages of a queue must keep their order.

        Raises
        ------
        SendError
            Half messages could not be committed; the next `commit` or `finish` continues.
        DataLossError
            ``HALF_MESSAGES_LOST``: brokers no longer have some half messages.
        TransactionFencedError
            Another process has begun to commit batches of this owner.
        RocketMQError
            The log or the queues cannot be read.
        """
        lease = Lease(self._log, name.owner, self._client.clock)
        undone = self._log.undone(name.owner)  # read once: a decision that appears later does not count
        decided = name.number in undone or self._is_done(name)
        if decided:
            _LOG.warning("%s was decided before: %d rows are not written again", name, halves.num_rows)
            roll_back(self._client, group, halves)
        for number in undone:
            self._finish(TransactionName(name.owner, number), lease)
        if decided or not halves.num_rows:
            return False
        queues = target_queues(halves)
        since = self._patiently(lambda: self._client.max_offsets(queues))
        decision = Decision(name=name, group=group, ordered=ordered, since=since, halves=halves)
        lease.confirm(now=True)
        self._log.decide(decision, lease.claim)
        lease.confirm(now=True)  # else another process may have decided, without seeing this decision
        self._carry_out(decision, halves, lease)
        return True

    def newest_done(self, name: TransactionName) -> int | None:
        """Return the number of the newest batch of the owner whose commit is finished."""
        return self._log.newest_done(name.owner)

    def finish(self, name: TransactionName, *, skip_lost: bool = False) -> Finished:
        """Commit the rest of a decided batch.

        Parameters
        ----------
        skip_lost : bool
            Finish the batch without the half messages that brokers no longer have.

        Raises
        ------
        SendError, DataLossError, TransactionFencedError, RocketMQError
            As `commit`.
        """
        return self._finish(name, Lease(self._log, name.owner, self._client.clock), skip_lost=skip_lost)

    def _finish(self, name: TransactionName, lease: Lease, *, skip_lost: bool = False) -> Finished:
        lease.outwait()
        if self._is_done(name):  # the process that had the lease before was at the end of its commit
            return Finished(committed=0)
        decision = self._log.read(name)
        left = self._settle(decision, decision.halves)
        _LOG.info("batch %s: %d of %d messages are left to commit", name, left.num_rows, len(decision.halves))
        lost = self._carry_out(decision, left, lease, skip_lost=skip_lost)
        return Finished(committed=int(left.num_rows) - lost, lost=lost)

    def abandon(self, name: TransactionName, halves: pa.Table, *, group: str) -> None:
        """Roll back half messages, unless their batch was decided: it stays."""
        if not self._is_decided(name):
            roll_back(self._client, group, halves)

    def _is_decided(self, name: TransactionName) -> bool:
        return name.number in self._log.undone(name.owner) or self._is_done(name)

    def _is_done(self, name: TransactionName) -> bool:
        done = self._log.newest_done(name.owner)
        return done is not None and name.number <= done

    def _carry_out(
        self, decision: Decision, halves: pa.Table, lease: Lease, *, skip_lost: bool = False
    ) -> int:
        """Commit half messages and record that the batch is finished; return how many are lost."""
        patience = self._client.deadline(self._outage_timeout_ms)
        lost = HALF_SCHEMA.empty_table()
        while halves.num_rows:
            before = halves.num_rows
            ended = end_half_messages(
                self._client,
                decision.group,
                halves,
                Ending.COMMIT,
                outage_timeout_ms=self._outage_timeout_ms,
                in_order=decision.ordered,
                before_send=lease.confirm,
            )
            lost = pa.concat_tables([lost, ended.gone])
            halves = self._settle(decision, ended.unknown) if ended.unknown.num_rows else ended.unknown
            if halves.num_rows < before:
                patience = self._client.deadline(self._outage_timeout_ms)
            elif patience.expired:
                raise SendError(
                    f"{before} half messages of batch {decision.name} are not committed: {ended.cause}",
                    failed=before,
                ) from ended.cause
        if lost.num_rows:
            self._tell_lost(decision, lost, skip=skip_lost)
        self._log.finish(decision.name)
        return int(lost.num_rows)

    def _tell_lost(self, decision: Decision, lost: pa.Table, *, skip: bool) -> None:
        ids = ", ".join(lost["msgId"].to_pylist()[:_SHOWN])
        shown = ids if lost.num_rows <= _SHOWN else f"{ids}, ..."
        if skip:
            _LOG.warning("batch %s ends without %d lost messages: %s", decision.name, lost.num_rows, shown)
            return
        raise DataLossError(
            f"{lost.num_rows} of {decision.halves.num_rows} half messages of batch {decision.name} are lost: "
            "their brokers do not have them any more. The others are committed. If the lost ones cannot come "
            f"back, end the batch without them: pyspark-rocketmq tx recover {self._log.folder} --skip-lost "
            "--yes; then start the query again",
            condition="HALF_MESSAGES_LOST",
            brokers=sorted(set(lost["brokerName"].to_pylist())),
            msg_ids=shown,
        )

    def _settle(self, decision: Decision, halves: pa.Table) -> pa.Table:
        """Return the uncommitted half messages, once no commit is pending."""
        scan = CommittedScan(self._client, halves, decision.since)
        self._patiently(scan.look)
        self._client.clock.sleep(_QUIET_S)
        while self._patiently(scan.look):  # another process may be committing: eventually all is committed
            self._client.clock.sleep(_QUIET_S)
        return scan.missing()

    def _patiently(self, ask: Callable[[], T]) -> T:
        clock, deadline = self._client.clock, self._client.deadline(self._outage_timeout_ms)
        return outlast_outage(ask, clock=clock, deadline=deadline)


def roll_back(client: Client, group: str, halves: pa.Table) -> None:
    """Roll back half messages as far as their brokers answer; the others stay invisible, too."""
    try:
        end_half_messages(client, group, halves, Ending.ROLLBACK, outage_timeout_ms=_ROLLBACK_MS)
    except RocketMQError as error:
        _LOG.warning("half messages are left to their brokers, which drop them: %s", error)
