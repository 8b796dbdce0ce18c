"""What the translator knows about the rows that a query, a table or a view returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from pyspark_rocketmq.sql.state.steps import CHANGE

__all__ = ["CHANGE", "LOOKUP", "WINDOW", "WITHOUT_OLD_ROW", "Relation", "Versions", "rows_of"]

WINDOW: Final = "__window"
"""The column that carries a window, with its watermark, from query to query. No result has it."""

WITHOUT_OLD_ROW: Final = -1
"""The index in the position of a change that comes without its old row. Other changes count from 0."""

LOOKUP: Final = "__lookup_"
"""How the names of tables of files begin that a stream reads as they are, by ``FOR SYSTEM_TIME AS OF``."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The rows of a table with a primary key and a watermark: a later row replaces an earlier one.

    Parameters
    ----------
    keys : tuple of str
        The columns of the primary key.
    time : str
        The column of the watermark: since when a row is valid.
    query : Select, optional
        The query of the rows, of a view that has the last one of each key.
    """

    keys: tuple[str, ...]
    time: str
    query: exp.Select | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows that are read.

    Parameters
    ----------
    stream : bool
        Whether they are a stream in this run.
    changes : bool
        Whether rows replace earlier ones: the result of an aggregation without a window, or of a Top-N.
    window : mapping of str to str
        The columns, in lower case, that hold ``start``, ``end`` or ``time`` of the row's window. Not empty if
        the rows have the column ``__window``.
    processing_time : frozenset of str
        The columns, in lower case, that are ``PROCTIME()``.
    event_time : frozenset of str
        The columns, in lower case, that are the time of ``WATERMARK FOR``.
    spark_windows : frozenset of str
        The columns, in lower case, that Spark's own ``window(…)`` has made.
    changelog : bool
        Whether each row is a change, with the column ``__change``.
    messages : bool
        Whether it is a table of the job whose rows are messages.
    files : bool
        Whether it is a table of the job whose rows are in files.
    versions : Versions, optional
        Of a table of messages.
    nested : mapping of str to str
        The columns, in lower case, that are maps (``map``) or arrays of rows (``rows``).
    write_only : str
        The connector of a table that cannot be read; otherwise empty.
    rank : str
        The column, in lower case, with the rank of a row: rows of a rank replace each other.
    ranks : int
        How many ranks there are; 0 if there is no such column.
    fixed : frozenset of str
        The columns, in lower case, whose values a row that changes has in common with the one that replaces
        it; ``#`` and the position of one without a name.
    cumulative : str
        What windows the rows have that grow by a step (``CUMULATE``); otherwise empty.
    keeps_state : bool
        Whether Spark keeps state for the rows, so that an aggregation of them that changes needs its own.
    query : Expression, optional
        The query of a view whose rows change: who needs the rows that it takes back translates it again.
    ranked : Select, optional
        The query of a stream's rows with their ``ROW_NUMBER()``: who reads it selects the ranks.
    """

    stream: bool = False
    changes: bool = False
    window: Mapping[str, str] = field(default_factory=dict)
    processing_time: frozenset[str] = frozenset()
    event_time: frozenset[str] = frozenset()
    spark_windows: frozenset[str] = frozenset()
    changelog: bool = False
    messages: bool = False
    files: bool = False
    versions: Versions | None = None
    nested: Mapping[str, str] = field(default_factory=dict)
    write_only: str = ""
    rank: str = ""
    ranks: int = 0
    fixed: frozenset[str] = frozenset()
    cumulative: str = ""
    keeps_state: bool = False
    query: exp.Expression | None = field(default=None, repr=False)
    ranked: exp.Select | None = field(default=None, repr=False)


def rows_of(column: exp.Expression, sources: Mapping[str, Relation]) -> list[Relation]:
    """Return what a column, or a star, may be of: the source that it names, or each."""
    table = column.table.lower() if isinstance(column, exp.Column) else ""
    return [rows for name, rows in sources.items() if table in {"", name}]
