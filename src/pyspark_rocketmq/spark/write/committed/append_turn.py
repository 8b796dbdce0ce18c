"""The right to append a committed batch to the topic that consumers read: one process at a time."""

# A process takes the right by a record in the commit topic, and looks at least once a second whether another
# process has done so since. It sends only within a second after a look. So a successor that waits for
# `_LEASE_S` after its own record finds everything that its predecessor has sent, except what brokers still
# queue. Only durations are compared: the clocks of the two processes need not agree.

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.errors import RocketMQError, TransactionFencedError
from pyspark_rocketmq.planning.commits.records import Append, Appended
from pyspark_rocketmq.spark.write.transaction_lease import LOOK_AGAIN_S, Looks

if TYPE_CHECKING:
    from pyspark_rocketmq.client.clock import Clock
    from pyspark_rocketmq.client.net.host import Host
    from pyspark_rocketmq.model import MessageQueue
    from pyspark_rocketmq.planning.commits.visible import Entry
    from pyspark_rocketmq.spark.write.committed.range_commits import RangeCommits
    from pyspark_rocketmq.spark.write.transaction_log import TransactionName

__all__ = ["AppendTurn"]

_LEASE_S: Final = 3.0


class AppendTurn:
    """One process's right to append a batch. Taking it ends that of any other process of the owner.

    Parameters
    ----------
    commits : RangeCommits
    name : TransactionName
    committed_at : int
        The offset of the batch's commit.
    clock : Clock
    host : Host
    """

    def __init__(
        self, commits: RangeCommits, name: TransactionName, committed_at: int, clock: Clock, host: Host
    ) -> None:
        self._commits = commits
        self._name = name
        self._committed_at = committed_at
        self._clock = clock
        self._claim = host.random_bytes(16).hex()
        self._known = committed_at
        self._has_claimed = False
        self._looks = Looks(clock)
        self.continues = False
        """Whether another process may have appended a part of the batch."""

    def take(self, ends: Callable[[], Mapping[MessageQueue, int]]) -> Mapping[MessageQueue, int] | None:
        """Take the right, and return where the batch's rows begin at the earliest; None if all are appended.

        Parameters
        ----------
        ends : Callable
            Returns the ends of the queues now.

        Raises
        ------
        RocketMQError
            The commit topic cannot be read or written.
        """
        earlier = self._earlier()
        if earlier is None:
            return None
        since = earlier[0].ends if earlier else ends()
        record = Append(
            owner=self._commits.owner(self._name), number=self._name.number, claim=self._claim, ends=since
        )
        own_at = self._commits.add(record)
        earlier = self._earlier(own_at + 1)
        if earlier:  # also one that came since
            self.continues = True
            self._clock.sleep(_LEASE_S)
            earlier = self._earlier(own_at + 1)
        if earlier is None:
            return None
        return earlier[0].ends if earlier else since

    def confirm(self) -> None:
        """Return if this process had the right a second ago, so that it may send; else raise.

        Raises
        ------
        TransactionFencedError
            Another process has taken it.
        RocketMQError
            The commit topic cannot be read, or only slowly.
        """
        if not self._looks.count and not self._looks.look(self._look):
            raise RocketMQError(
                f"the commit topic takes longer than {LOOK_AGAIN_S:.0f} s to be read: whether another "
                "process appends this batch is not known. Its rows are committed; the next run of the query "
                "or job, or pyspark-rocketmq tx append, continues",
                owner=self._name.owner,
            )

    def finish(self) -> None:
        """Tell that every row is appended."""
        self._commits.add(Appended(owner=self._commits.owner(self._name), number=self._name.number))

    def _earlier(self, known: int = 0) -> list[Append] | None:
        """Return the claims of the batch before this process's own, in order; None if it is appended.

        Records before ``known`` are stored: they are waited for if the broker does not show them yet.
        """
        entries = self._read(self._committed_at, max(self._commits.end(), known))
        if any(isinstance(entry.record, Appended) for entry in entries):
            return None
        claims = [entry.record for entry in entries if isinstance(entry.record, Append)]
        own = next((at for at, claim in enumerate(claims) if claim.claim == self._claim), len(claims))
        return claims[:own]

    def _read(self, begin: int, end: int) -> list[Entry]:
        entries = self._commits.records(self._name, begin, end)
        return [entry for entry in entries if entry.record.number == self._name.number]

    def _look(self) -> None:
        end = self._commits.end()
        if end <= self._known:
            return
        for entry in self._commits.records(self._name, self._known, end):
            if not isinstance(entry.record, Append):
                continue
            self._has_claimed |= entry.record.claim == self._claim
            if self._has_claimed and entry.record.claim != self._claim:
                raise TransactionFencedError(
                    "another process has taken over this batch and appends it: only one run of a query or "
                    "job may do so at a time",
                    owner=self._name.owner,
                    batch=self._name.number,
                )
        self._known = end
