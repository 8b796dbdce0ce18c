"""Messages of transactional writes that are committed by ranges: which of them are rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from pyspark_rocketmq.errors import OptionError

__all__ = ["Decided"]


@dataclass(frozen=True, slots=True)
class Decided:
    """What a commit topic says about the marked messages of a queue.

    Parameters
    ----------
    topic : str
        The queue's topic.
    by : str
        The commit topic; empty if there was none, and a marked message is an error.
    ranges : sequence of (int, int)
        Which marked messages are rows: offsets from the first to the one before the second, in order.
    """

    topic: str
    by: str
    ranges: Sequence[tuple[int, int]] = ()

    def check(self, marks: Iterable[str | None]) -> None:
        """Check that no other commit topic decides about messages with these marks; None is no mark.

        Raises
        ------
        OptionError
        """
        strangers = set(marks) - {None, self.by}
        if strangers:
            read = self.by or "it was not found: its broker may be down. No commit topic"
            raise OptionError(
                f"{min(filter(None, strangers))} decides which of these messages are rows, and {read} was "
                "read: set commitTopic",
                option="commitTopic",
                topic=self.topic,
            )

    def has(self, offset: int) -> bool:
        """Return whether an offset is in a committed range."""
        place = bisect_right(self.ranges, offset, key=itemgetter(0)) - 1
        return place >= 0 and offset < self.ranges[place][1]

    def lists(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return whether each offset is in a committed range."""
        if not self.ranges:
            return np.zeros(len(offsets), np.bool_)
        begins, ends = np.array(self.ranges, np.int64).T
        place = np.searchsorted(begins, offsets, side="right") - 1
        listed: npt.NDArray[np.bool_] = (place >= 0) & (offsets < ends[place])
        return listed
