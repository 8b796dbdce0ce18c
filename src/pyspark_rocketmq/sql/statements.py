"""The statements of a job as values: what was written, and where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from pyspark_rocketmq.errors import SqlError

__all__ = [
    "Column",
    "ComputedColumn",
    "CreateTable",
    "CreateView",
    "DropTable",
    "Insert",
    "MetadataColumn",
    "Name",
    "PhysicalColumn",
    "Position",
    "Query",
    "Reset",
    "Set",
    "SparkStatement",
    "Statement",
    "TableOption",
    "Watermark",
]


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the text.

    Parameters
    ----------
    line, column : int
        Counted from 1.
    """

    line: int
    column: int

    @classmethod
    def of(cls, text: str, offset: int) -> Position:
        """Return the place of a character."""
        return cls(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))

    def fail(self, message: str) -> NoReturn:
        """Raise the error that stands here.

        Raises
        ------
        SqlError
        """
        raise SqlError(message, line=self.line, column=self.column)


@dataclass(frozen=True, slots=True)
class Name:
    """A name as it was written, without its quotes."""

    text: str
    position: Position

    @property
    def key(self) -> str:
        """What names are compared by: Spark does not regard case."""
        return self.text.lower()


@dataclass(frozen=True, slots=True)
class PhysicalColumn:
    """A column that is part of the body.

    Parameters
    ----------
    name : Name
    type : str
        Spark's DDL of its type.
    nullable : bool
    """

    name: Name
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class MetadataColumn:
    """A column that is part of the message besides its body: ``METADATA [FROM 'key'] [VIRTUAL]``.

    Parameters
    ----------
    key : str
        The metadata's name; the column's own unless ``FROM`` says another one.
    virtual : bool
        Not written.
    """

    name: Name
    type: str
    key: str
    virtual: bool


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column that is made of others when the table is read: ``name AS expression``."""

    name: Name
    expression: Query


Column: TypeAlias = PhysicalColumn | MetadataColumn | ComputedColumn


@dataclass(frozen=True, slots=True)
class Watermark:
    """``WATERMARK FOR column AS column - INTERVAL …``.

    Parameters
    ----------
    column : Name
    delay : str
        As Spark's ``withWatermark`` takes it, such as ``5 SECOND``.
    """

    column: Name
    delay: str


@dataclass(frozen=True, slots=True)
class TableOption:
    """An option of a table, and where it stands."""

    name: str
    value: str = field(repr=False)  # it may be a secret
    position: Position


@dataclass(frozen=True, slots=True)
class Query:
    """A query or an expression for Spark.

    Parameters
    ----------
    padded : str
        Its text behind as many blanks and line ends as stand before it in the job: places that Spark
        reports are those of the job.
    names : frozenset of str
        Everything in it that could be a table's name, in lower case.
    """

    padded: str = field(repr=False)  # options with secrets may stand in it
    names: frozenset[str] = field(repr=False)
    position: Position

    @property
    def text(self) -> str:
        """What was written."""
        return self.padded.strip()


@dataclass(frozen=True, slots=True)
class CreateTable:
    """``CREATE TABLE`` of a table of ours."""

    name: Name
    columns: tuple[Column, ...]
    watermark: Watermark | None
    options: tuple[TableOption, ...]
    replace: bool
    if_not_exists: bool
    position: Position


@dataclass(frozen=True, slots=True)
class CreateView:
    """``CREATE [TEMPORARY] VIEW name AS query``."""

    name: Name
    query: Query
    replace: bool
    if_not_exists: bool
    position: Position


@dataclass(frozen=True, slots=True)
class DropTable:
    """``DROP TABLE`` of a table that may be ours."""

    name: Name
    if_exists: bool
    whole: Query
    position: Position


@dataclass(frozen=True, slots=True)
class Insert:
    """``INSERT INTO target [(columns)] query``.

    Parameters
    ----------
    target : Name
        Dots are part of it.
    columns : tuple of Name
        Empty: all that can be written, in order.
    """

    target: Name
    columns: tuple[Name, ...]
    overwrite: bool
    query: Query
    whole: Query
    position: Position


@dataclass(frozen=True, slots=True)
class Set:
    """``SET 'name' = 'value'``."""

    name: str
    value: str
    position: Position


@dataclass(frozen=True, slots=True)
class Reset:
    """``RESET ['name']``."""

    name: str | None
    position: Position


@dataclass(frozen=True, slots=True)
class SparkStatement:
    """A statement that is Spark's own.

    Parameters
    ----------
    is_query : bool
        It gives rows.
    """

    whole: Query
    is_query: bool
    position: Position


Statement: TypeAlias = CreateTable | CreateView | DropTable | Insert | Set | Reset | SparkStatement
