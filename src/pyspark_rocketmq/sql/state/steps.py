"""The steps of a query that keep state, which Spark's SQL has no words for: plain values.

A step reads the rows of a text, and its result is a view that the next step, or the query, reads. Steps that
take back rows give each row its kind of change in the column `CHANGE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

__all__ = [
    "ARGUMENT",
    "CHANGE",
    "KEPT",
    "KEY",
    "OP",
    "ORDER",
    "POSITION",
    "RESULT",
    "ROW",
    "SIDE",
    "VERSION",
    "Aggregate",
    "Distinct",
    "Fold",
    "Grouping",
    "Joining",
    "Operation",
    "Over",
    "Ranking",
    "Step",
    "Versioned",
]

CHANGE: Final = "__change"
"""The last column of a changelog's rows: their kind of change, and its position. No result has it."""

KEY: Final = "__k"
"""How the names of a step's keys begin; a number follows."""

ARGUMENT: Final = "__a"
"""How the names of the arguments of aggregates begin."""

RESULT: Final = "__r"
"""How the names of the results of aggregates begin."""

ORDER: Final = "__o"
"""How the names of what rows are ranked by begin."""

ROW: Final = "__row"
"""The rows that are ranked, as a struct."""


KEPT: Final = "__c"
"""How the names of columns begin that only pass a step."""

VERSION: Final = "__version"
"""The version of a row, as a struct."""

SIDE: Final = "__side"
"""Of which side of a join a row is, 0 or 1, for Python workers."""

OP: Final = "__op"
"""A row's kind of change, for Python workers."""

POSITION: Final = "__position"
"""The offset and index of a version's change, as an array; NULL of rows that are no changes."""


class Fold(StrEnum):
    """An aggregate function that can take back a value."""

    ANY_VALUE = "ANY_VALUE"
    AVG = "AVG"
    COUNT = "COUNT"
    MAX = "MAX"
    MIN = "MIN"
    SUM = "SUM"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate of a group.

    Parameters
    ----------
    fold : Fold
        `ANY_VALUE` is always NULL: only its type is used.
    argument : bool
        Whether it has one, of its number. Without it is ``COUNT(*)``.
    distinct : bool
    """

    fold: Fold
    argument: bool = True
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Grouping:
    """One row for each group, with its aggregates.

    Parameters
    ----------
    keys : int
        How many. A query without keys always has a row.
    aggregates : tuple of Aggregate
    """

    keys: int
    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True, slots=True)
class Ranking:
    """The first rows of each key.

    Parameters
    ----------
    keys : int
    order : tuple of (bool, bool)
        For each value: whether it descends, and whether NULL comes first.
    limit : int
        How many rows of a key.
    rank : str
        The column with a row's rank.
    shows_rank : bool
        Whether a row changes if only its rank does.
    newest : bool
        Whether of rows with equal values the later one comes first: the last row of a key by its time.
    """

    keys: int
    order: tuple[tuple[bool, bool], ...]
    limit: int
    rank: str
    shows_rank: bool
    newest: bool = False


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each row once. No row is taken back."""


@dataclass(frozen=True, slots=True)
class Over:
    """Aggregates of the rows before each row, in the order of their times. No row is taken back.

    A row is emitted when the watermark has passed its time, which is the column `ORDER` 0.

    Parameters
    ----------
    keys : int
    aggregates : tuple of Aggregate
    rows : bool
        Whether the frame counts rows; otherwise it is a range of times, in which rows of one time are equal.
    preceding : int, optional
        How many rows, or microseconds, are in the frame before the row. None: all.
    """

    keys: int
    aggregates: tuple[Aggregate, ...]
    rows: bool
    preceding: int | None


@dataclass(frozen=True, slots=True)
class Versioned:
    """Each row with the version of its key that was valid at its time, the column `ORDER` 0 of both.

    Parameters
    ----------
    keys : int
    versions : str
        Spark's text of the query of the versions, which are the structs `VERSION` with their change `OP`.
    kept : tuple of str
        The structs of the rows.
    outer : bool
        Whether rows without a version are kept.
    """

    keys: int
    versions: str
    kept: tuple[str, ...]
    outer: bool


@dataclass(frozen=True, slots=True)
class Joining:
    """The pairs of two sides with equal keys. Rows are taken back, on either side.

    Parameters
    ----------
    keys : int
    right : str
        Spark's text of the query of the right side.
    kept : (tuple of str, tuple of str)
        The structs of the rows of each side.
    outer : (bool, bool)
        Whether the rows of a side are kept without a match.
    """

    keys: int
    right: str
    kept: tuple[tuple[str, ...], tuple[str, ...]]
    outer: tuple[bool, bool]


Operation: TypeAlias = Grouping | Ranking | Distinct | Over | Versioned | Joining


@dataclass(frozen=True, slots=True)
class Step:
    """A step with state.

    Parameters
    ----------
    name : str
        Of the view with its result.
    text : str
        Spark's text of the query that it reads.
    operation : Operation
    changes : bool
        Whether it reads rows with `CHANGE`.
    """

    name: str
    text: str
    operation: Operation
    changes: bool = False

    @property
    def other(self) -> str | None:
        """Spark's text of the second query that it reads."""
        match self.operation:
            case Versioned():
                return self.operation.versions
            case Joining():
                return self.operation.right
        return None
