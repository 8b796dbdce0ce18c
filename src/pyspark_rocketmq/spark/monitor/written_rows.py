"""How many rows a batch write has written."""

# Facts (Spark 4.2, 4.3)
# - An Observation's metrics arrive by the listener bus, a moment after the action has returned; if they were
#   optimized away, without values.
# - `Observation.get` waits for them without a deadline; its future tells whether they have arrived.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.utils import is_remote

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline

__all__ = ["WrittenRows", "write_counted"]

_PATIENCE_MS: Final = 60_000
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """What a batch write to a table has written.

    ``rows`` includes rows that became dead letters. It is None if Spark does not tell it.
    """

    table: str
    rows: int | None


def write_counted(
    rows: DataFrame, write: Callable[[DataFrame], None], *, clock: Clock = SYSTEM_CLOCK
) -> int | None:
    """Call ``write`` with a DataFrame of the same rows, and return their number.

    None if Spark does not tell it: Spark Connect does not.
    """
    if is_remote():
        write(rows)
        return None
    observation = Observation()
    write(rows.observe(observation, F.count(F.lit(1)).alias("rows")))
    deadline = Deadline(clock, _PATIENCE_MS)
    arrived: Any = observation._jo  # noqa: SLF001 - PySpark has no wait with a deadline
    while not arrived.future().isCompleted():
        if deadline.expired:
            return None
        clock.sleep(_POLL_S)
    return observation.get.get("rows")
