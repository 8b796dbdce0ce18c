"""The statements of a job as values, with their positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeAlias

from sqlglot import Token, TokenType

from pyspark_rocketmq.errors import SqlError

__all__ = [
    "Column",
    "ComputedColumn",
    "CreateFunction",
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
    "show_token",
]

_QUOTED: Final = frozenset({TokenType.STRING, TokenType.RAW_STRING, TokenType.UNICODE_STRING})


def show_token(token: Token) -> str:
    """Return what an error shows of a token: no text between quotes, which may be a secret."""
    return "a text between quotes" if token.token_type in _QUOTED else repr(token.text)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in the text.

    Parameters
    ----------
    line, column : int
        Counted from 1.
    """

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"

    @classmethod
    def of(cls, text: str, offset: int) -> Position:
        """Return the position of a character."""
        return cls(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))

    def fail(self, message: str) -> NoReturn:
        """Raise an error at this position.

        Raises
        ------
        SqlError
        """
        raise SqlError(message, line=self.line, column=self.column)


@dataclass(frozen=True, slots=True)
class Name:
    """A name as written, without its quotes."""

    text: str
    position: Position

    @property
    def key(self) -> str:
        """The key for comparing names: Spark ignores case."""
        return self.text.lower()


@dataclass(frozen=True, slots=True)
class PhysicalColumn:
    """A column of the body.

    Parameters
    ----------
    name : Name
    type : str
        Its type in Spark's DDL.
    nullable : bool
    """

    name: Name
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class MetadataColumn:
    """A column of the message's metadata: ``METADATA [FROM 'key'] [VIRTUAL]``.

    Parameters
    ----------
    key : str
        The metadata's name: the column's name unless ``FROM`` sets another.
    virtual : bool
        Not written.
    """

    name: Name
    type: str
    key: str
    virtual: bool


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column computed from others when the table is read: ``name AS expression``."""

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
        In the format of Spark's ``withWatermark``, such as ``5 SECOND``.
    """

    column: Name
    delay: str


@dataclass(frozen=True, slots=True)
class TableOption:
    """An option of a table, and its position."""

    name: str
    value: str = field(repr=False)  # it may be a secret
    position: Position


@dataclass(frozen=True, slots=True)
class Query:
    """A query or an expression for Spark.

    Parameters
    ----------
    padded : str
        Its text after as many blanks and line ends as precede it in the job, so that the positions that
        Spark reports are those of the job.
    names : frozenset of str
        Every word in it that could be a table's name, in lower case: not those after ``AS``.
    """

    padded: str = field(repr=False)  # may contain options with secrets
    names: frozenset[str] = field(repr=False)
    position: Position

    @property
    def text(self) -> str:
        """The text as written."""
        return self.padded.strip()


@dataclass(frozen=True, slots=True)
class CreateTable:
    """``CREATE TABLE`` of a RocketMQ table.

    Parameters
    ----------
    flink : bool
        Whether it is written in Flink's syntax, ``WITH ('connector' = …)``.
    connector : str
        In lower case.
    partitions : tuple of Name
        The columns of ``PARTITIONED BY``.
    primary_key : tuple of Name
        The columns of ``PRIMARY KEY``.
    """

    name: Name
    columns: tuple[Column, ...]
    watermark: Watermark | None
    options: tuple[TableOption, ...]
    replace: bool
    if_not_exists: bool
    flink: bool
    connector: str
    partitions: tuple[Name, ...]
    position: Position
    primary_key: tuple[Name, ...] = ()

    def keeps(self, there: CreateTable | None) -> bool:
        """Whether the statement does nothing, because its table has been declared.

        Raises
        ------
        SqlError
            The table has been declared, and the statement does not say what to do then.
        """
        if there is None:
            return False
        if not self.if_not_exists and not self.replace:
            self.name.position.fail(
                f"table {self.name.text} already exists, since line {there.position.line}"
            )
        return self.if_not_exists


@dataclass(frozen=True, slots=True)
class CreateView:
    """``CREATE [TEMPORARY] VIEW name [(columns)] AS query``."""

    name: Name
    query: Query
    replace: bool
    if_not_exists: bool
    position: Position
    columns: tuple[Name, ...] = ()

    def keeps(self, there: bool) -> bool:
        """Whether the statement does nothing, because there is a view or table of its name.

        Raises
        ------
        SqlError
            There is one, and the statement does not say what to do then.
        """
        if there and not self.if_not_exists and not self.replace:
            self.name.position.fail(f"{self.name.text} already exists: use CREATE OR REPLACE VIEW")
        return there and self.if_not_exists


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """``CREATE [TEMPORARY] FUNCTION name AS 'module.function' LANGUAGE PYTHON | JAVA | SCALA``.

    Parameters
    ----------
    path : str
        The Python function, or the class.
    is_python : bool
    jars : tuple of str
        Of ``USING JAR``.
    of_spark : Query, optional
        The whole statement, if it is one of Spark's, too: it has no LANGUAGE, which is JAVA in Flink.
    """

    name: Name
    path: str
    position: Position
    is_python: bool = True
    jars: tuple[str, ...] = ()
    of_spark: Query | None = None


@dataclass(frozen=True, slots=True)
class DropTable:
    """``DROP TABLE`` or ``DROP VIEW`` of a table or view that may be the job's."""

    name: Name
    if_exists: bool
    whole: Query
    position: Position
    is_view: bool = False


@dataclass(frozen=True, slots=True)
class Insert:
    """``INSERT INTO target [(columns)] query``.

    Parameters
    ----------
    target : Name
        May contain dots.
    columns : tuple of Name
        Empty: all writable columns, in order.
    """

    target: Name
    columns: tuple[Name, ...]
    overwrite: bool
    query: Query
    whole: Query
    position: Position

    def require_columns(self, given: Sequence[str], wanted: Sequence[str]) -> None:
        """Check that the query has as many columns as the statement fills.

        Raises
        ------
        SqlError
        """
        if len(given) != len(wanted):
            self.query.position.fail(
                f"the query has {len(given)} columns, but {self.target.text} is given {len(wanted)}: "
                f"{', '.join(wanted)}"
            )

    def refuse_clauses(self) -> None:
        """Refuse clauses of Spark's INSERT, for the insert into a table of the job.

        Raises
        ------
        SqlError
        """
        clause = self.query.text.split(maxsplit=1)[0].upper()
        if clause in {"PARTITION", "BY", "REPLACE"}:
            self.query.position.fail(
                f"{clause} is for tables of Spark's: name the columns, {self.target.text} (a, b), and select "
                "their values"
            )

    def require_append(self) -> None:
        """Check that the statement does not overwrite, for the insert into a topic.

        Raises
        ------
        SqlError
        """
        if self.overwrite:
            self.target.position.fail("a topic cannot be overwritten: use INSERT INTO")


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
    """A statement to pass to Spark.

    Parameters
    ----------
    is_query : bool
        Whether it returns rows.
    """

    whole: Query
    is_query: bool
    position: Position


Statement: TypeAlias = (
    CreateFunction | CreateTable | CreateView | DropTable | Insert | Set | Reset | SparkStatement
)
