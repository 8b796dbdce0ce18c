"""Accounts for the offsets of a task: each is explained, or the task fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import OffsetRange, RangeReport

__all__ = ["Account"]

_SHOWN: Final = 5


@dataclass(slots=True)
class Account:
    """The sum of range reports, compared with the plan.

    Parameters
    ----------
    planned : sequence of OffsetRange
    """

    planned: Sequence[OffsetRange]
    reports: list[RangeReport] = field(default_factory=list)

    def add(self, report: RangeReport) -> None:
        """Add a range's report.

        Raises
        ------
        DataLossError
            ``RANGE_UNACCOUNTED``: its parts do not add up to the range.
        """
        lost = sum(len(part.offsets) for part in report.lost)
        parts = (report.rows, report.filtered, report.gaps, lost, report.skipped)
        explained = sum(parts)
        if explained != len(report.offsets) or min(parts) < 0:
            raise _unaccounted_error(
                f"{report.rows} rows, {report.filtered} filtered, {report.gaps} gaps, {lost} lost and "
                f"{report.skipped} skipped do not make up {len(report.offsets)} offsets",
                [report.offsets],
            )
        self.reports.append(report)

    def close(self, rows: int) -> None:
        """Check that every planned range was reported once, and that all rows were returned.

        Raises
        ------
        DataLossError
            ``RANGE_UNACCOUNTED``: a planned range was not reported, another one was, or rows are missing.
        """
        reported = sorted(report.offsets for report in self.reports)
        planned = sorted(self.planned)
        if reported != planned:
            strange = sorted(set(planned).symmetric_difference(reported)) or planned  # one was read twice
            raise _unaccounted_error("the ranges that were read are not those that were planned", strange)
        if rows != self.count("rows"):
            raise _unaccounted_error(f"{rows} rows were returned, but {self.count('rows')} read", planned)

    def count(self, part: Literal["rows", "filtered", "gaps", "lost", "skipped", "nulled"]) -> int:
        """Return the number of offsets by outcome."""
        if part == "lost":
            return sum(len(lost.offsets) for report in self.reports for lost in report.lost)
        return sum(getattr(report, part) for report in self.reports)

    def __str__(self) -> str:
        counts = [(self.count("rows"), "rows"), (self.count("filtered"), "filtered")]
        counts += [(self.count("gaps"), "gaps"), (self.count("lost"), "lost")]
        counts += [(self.count("skipped"), "skipped as corrupt")]
        split = " + ".join(f"{count} {name}" for count, name in counts if count or name == "rows")
        some = ", ".join(map(str, self.planned[:_SHOWN]))
        more = f" and {len(self.planned) - _SHOWN} more" if len(self.planned) > _SHOWN else ""
        nulled = f", {self.count('nulled')} rows with nulls for what does not decode"
        return (
            f"{sum(map(len, self.planned))} offsets = {split} of {some}{more}"
            f"{nulled if self.count('nulled') else ''}"
        )


def _unaccounted_error(what: str, ranges: Sequence[OffsetRange]) -> DataLossError:
    return DataLossError(
        f"{what}: this is a defect of the reader, which no option ignores",
        condition="RANGE_UNACCOUNTED",
        range=ranges[0] if ranges else None,
    )
