"""Deciding about a batch of half messages, and carrying it out, also after a crash."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from pyspark_rocketmq.client.retry import retry
from pyspark_rocketmq.client.transaction import CommittedScan, Ending, end_half_messages, target_queues
from pyspark_rocketmq.errors import BrokerNotFoundError, RocketMQError, TopicNotFoundError
from pyspark_rocketmq.spark.transaction_log import Decision, TransactionLog, TransactionName

if TYPE_CHECKING:
    from pyspark_rocketmq.client.core import Client

__all__ = ["Transactions", "roll_back"]

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)

_QUIET_S: Final = 3.5
"""After this without a new commit none is on its way any more: brokers drop those that waited 3 s."""

_ROLLBACK_MS: Final = 10_000
"""How long a rollback is tried while no broker answers: what nobody rolls back its broker drops, later."""


class Transactions:
    """The batches of one log: each is decided once, and its commit finished however often it takes.

    Promise: a batch that was not decided is never visible. One that was is visible as a whole when `commit`
    returns, each message once, unless two processes commit it at the same time, or a broker loses what it
    had acknowledged.

    Parameters
    ----------
    client : Client
    log : TransactionLog
    outage_timeout_ms : int
        How long brokers that are away are waited for.
    """

    def __init__(self, client: Client, log: TransactionLog, *, outage_timeout_ms: int) -> None:
        self._client = client
        self._log = log
        self._outage_timeout_ms = outage_timeout_ms

    def commit(self, name: TransactionName, halves: pa.Table, *, group: str, ordered: bool) -> None:
        """Make a batch visible: this one, or the one that was decided about before under the same name.

        Raises
        ------
        SendError
            Half messages could not be committed; the next `commit` or `finish` goes on.
        RocketMQError
            The log or the queues cannot be read.
        """
        decided = self._is_decided(name)
        if decided:
            _LOG.warning("%s was decided before: %d rows are not written again", name, halves.num_rows)
            roll_back(self._client, group, halves)
        for number in self._log.undone(name.owner):
            self.finish(TransactionName(name.owner, number))
        if decided or not halves.num_rows:
            return
        queues = target_queues(halves)
        since = self._patiently(lambda: self._client.max_offsets(queues))
        decision = Decision(name=name, group=group, ordered=ordered, since=since, halves=halves)
        self._log.decide(decision)
        self._carry_out(decision, halves)

    def finish(self, name: TransactionName) -> int:
        """Commit what is left of a batch that was decided about; return how many messages that were.

        Raises
        ------
        SendError, RocketMQError
            As `commit`.
        """
        decision = self._log.read(name)
        left = self._settled(decision, decision.halves)
        _LOG.info("batch %s: %d of %d messages are left to commit", name, left.num_rows, len(decision.halves))
        self._carry_out(decision, left)
        return int(left.num_rows)

    def abandon(self, name: TransactionName, halves: pa.Table, *, group: str) -> None:
        """Roll half messages back, unless their batch was decided about: that stays."""
        if not self._is_decided(name):
            roll_back(self._client, group, halves)

    def _is_decided(self, name: TransactionName) -> bool:
        done = self._log.newest_done(name.owner)
        return (done is not None and name.number <= done) or name.number in self._log.undone(name.owner)

    def _carry_out(self, decision: Decision, halves: pa.Table) -> None:
        patience = self._client.deadline(self._outage_timeout_ms)
        while halves.num_rows:
            before = halves.num_rows
            unknown = end_half_messages(
                self._client,
                decision.group,
                halves,
                Ending.COMMIT,
                outage_timeout_ms=self._outage_timeout_ms,
                in_order=decision.ordered,
            )
            halves = self._settled(decision, unknown) if unknown.num_rows else unknown
            if halves.num_rows < before:
                patience = self._client.deadline(self._outage_timeout_ms)
            else:
                patience.check(f"{before} half messages of batch {decision.name} are not committed")
        self._log.finish(decision.name)

    def _settled(self, decision: Decision, halves: pa.Table) -> pa.Table:
        """Return those that are not committed, once no commit is on its way any more."""
        scan = CommittedScan(self._client, halves, decision.since)
        self._patiently(scan.look)
        self._client.clock.sleep(_QUIET_S)
        while self._patiently(scan.look):  # another process may be at it still; all are committed some time
            self._client.clock.sleep(_QUIET_S)
        return scan.missing()

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask again while brokers are away: name servers forget their topics then."""

        def attempt() -> T:
            try:
                return ask()
            except TopicNotFoundError as error:
                raise BrokerNotFoundError("no broker has the topic now", **error.facts) from error

        return retry(
            attempt,
            deadline=self._client.deadline(self._outage_timeout_ms),
            clock=self._client.clock,
            random=self._client.random,
        )


def roll_back(client: Client, group: str, halves: pa.Table) -> None:
    """Roll half messages back as far as their brokers answer; the others stay invisible too."""
    try:
        end_half_messages(client, group, halves, Ending.ROLLBACK, outage_timeout_ms=_ROLLBACK_MS)
    except RocketMQError as error:
        _LOG.warning("half messages are left to their brokers, which drop them: %s", error)
