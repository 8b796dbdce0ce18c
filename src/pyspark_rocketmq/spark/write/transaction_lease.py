"""The right to commit a query's transactions: one process at a time, however the others ended."""

# A process claims the right in the log and checks repeatedly that no other process has claimed it since. It
# sends commits only within the lease time after a check at which it had the right. So a successor that waits
# for the lease time after its claim sees everything that its predecessor sent, except what brokers still
# queue. Only durations are compared: the clocks of the two processes need not agree.

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.client.clock import Since
from pyspark_rocketmq.errors import RocketMQError, TransactionFencedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_rocketmq.client.clock import Clock
    from pyspark_rocketmq.spark.write.transaction_log import TransactionLog

__all__ = ["LOOK_AGAIN_S", "Lease", "Looks"]

_LEASE_S: Final = 3.0
LOOK_AGAIN_S: Final = 1.0
"""How long a look at who has the right counts, from its beginning."""
_LOOKS: Final = 5


class Looks:
    """When a process last looked whether another one has taken its right.

    Parameters
    ----------
    clock : Clock
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: Since | None = None

    @property
    def count(self) -> bool:
        """Whether the last look still counts."""
        return self._seen is not None and self._seen.seconds <= LOOK_AGAIN_S

    def look(self, step: Callable[[], None]) -> bool:
        """Look, and again while that takes too long; return whether one look was quick enough to count."""
        for _ in range(_LOOKS):
            began = Since(self._clock)
            step()
            if began.seconds <= LOOK_AGAIN_S:
                self._seen = began
                return True
        return False


class Lease:
    """One process's right to commit the batches of one owner. Taking it ends that of any other process.

    Parameters
    ----------
    log : TransactionLog
    owner : str
    clock : Clock

    Raises
    ------
    RocketMQError
        The log cannot be read or written.
    """

    def __init__(self, log: TransactionLog, owner: str, clock: Clock) -> None:
        self._log = log
        self._owner = owner
        self._clock = clock
        self._looks = Looks(clock)
        self.claim = log.claim(owner)

    def confirm(self, *, now: bool = False) -> None:
        """Return if this process had the right at the last check, so that it may send commits; else raise.

        Parameters
        ----------
        now : bool
            Check the log in any case, not only if the last check is at least a second old.

        Raises
        ------
        TransactionFencedError
            Another process has claimed it.
        RocketMQError
            The log cannot be read, or only slowly.
        """
        if (now or not self._looks.count) and not self._looks.look(self._require_claim):
            raise RocketMQError(
                f"the folder of transactions takes longer than {LOOK_AGAIN_S:.0f} s to be listed: move "
                "transactionLog to a faster file system",
                folder=self._log.folder,
            )

    def _require_claim(self) -> None:
        if self._log.newest_claim(self._owner) != self.claim:
            raise TransactionFencedError(
                "another process has taken over these transactions and finishes what was decided: only "
                "one run of a query or job, or of 'pyspark-rocketmq tx recover', may commit at a time",
                owner=self._owner,
                folder=self._log.folder,
            )

    def outwait(self) -> None:
        """Wait until the previous holder of the right can no longer send commits."""
        self._clock.sleep(_LEASE_S)
