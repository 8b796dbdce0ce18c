"""A dialect of sqlglot: Spark's SQL with Flink's table definitions.

Our statements (tables, inserts, settings) are parsed here. Queries and expressions are cut out and passed to
Spark, so that only Spark interprets its SQL. Every error has a line and a column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, NoReturn, TypeVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

from pyspark_rocketmq.sql.definitions.checks import check_key, check_watermark, refuse_twice
from pyspark_rocketmq.sql.definitions.like import MERGES, PARTS, Like, Merge, Parts, merge_like
from pyspark_rocketmq.sql.refusals.flink_statements import INSTEAD_OF_TYPES
from pyspark_rocketmq.sql.statements import (
    Column,
    ComputedColumn,
    CreateTable,
    MetadataColumn,
    Name,
    PhysicalColumn,
    Position,
    Query,
    TableOption,
    Watermark,
    show_token,
)

__all__ = ["BOUNDED", "CONNECTORS", "DEFAULT_DATABASES", "FORMATS", "WRITE_ONLY", "JobDialect", "TableParser"]

T = TypeVar("T")

FORMATS: Final = frozenset({"rocketmq", "org.apache.rocketmq.spark"})
"""The value of ``USING`` and ``'connector'``."""

CONNECTORS: Final = frozenset({"blackhole", "print", "filesystem", "jdbc"})
"""Connectors of Flink's that Spark has, too."""

BOUNDED: Final = frozenset({"jdbc"})
"""Those whose tables are no streams."""

DEFAULT_DATABASES: Final = ("default_catalog.default_database.", "default_database.")
"""What names of Flink's may begin with."""

WRITE_ONLY: Final = frozenset({"blackhole", "print"})
"""Those whose tables cannot be read."""

_OPENS: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSES: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})
_TEXTS: Final = frozenset({exp.DType.VARCHAR, exp.DType.CHAR, exp.DType.NCHAR, exp.DType.NVARCHAR})
_BINARIES: Final = frozenset({exp.DType.VARBINARY, exp.DType.BINARY})
_UNKNOWN_TYPES: Final = frozenset({exp.DType.TIME, exp.DType.TIMETZ, exp.DType.USERDEFINED})
_LITERALS: Final = frozenset({TokenType.STRING, TokenType.NUMBER, TokenType.RAW_STRING})


class TableParser(SparkParser):
    """Parses table definitions, on sqlglot's parser. A subclass parses statements."""

    _keys: list[tuple[Name, ...]]
    """The primary keys of the table that is being parsed, of which it may have one."""

    _partitioned: Position | None
    """The place of its PARTITIONED BY."""

    tables: dict[str, CreateTable]
    """The tables that have been declared, by name in lower case."""

    # --- tokens -----------------------------------------------------------------------------

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise a SqlError with the position.

        Raises
        ------
        SqlError
        """
        if token is None and not self._curr:
            self.fail_at_end(message)
        at = token or self._curr
        self.position(at).fail(f"{message}, found {show_token(at)}")

    def fail_at_end(self, message: str) -> NoReturn:
        """Raise an error at the position after the last token."""
        Position.of(self.sql, self._prev.end + 1).fail(f"{message}, found the end of the statement")

    def position(self, token: Token) -> Position:
        """Return the start of a token."""
        return Position.of(self.sql, token.start)

    def here(self) -> Position:
        """Return the start of the next token."""
        return self.position(self._curr or self._prev)

    def expect(self, *words: str) -> None:
        """Consume these words."""
        if not self._match_text_seq(*words):
            self.raise_error(f"expected {' '.join(words)}")

    def next_is(self, *words: str) -> bool:
        """Return whether these words come next, without consuming them."""
        return bool(self._match_text_seq(*words, advance=False))

    def name(self, what: str) -> Name:
        """Consume a name, quoted or not."""
        if not self._curr or self._curr.token_type in _LITERALS or self._curr.token_type in _OPENS | _CLOSES:
            self.raise_error(f"expected {what}")
        self._advance()
        return Name(self._prev.text, self.position(self._prev))

    def table_name(self) -> Name:
        """Consume a table's name, without Flink's default catalog and database."""
        first = self.name("a table's name")
        parts = [first.text]
        while self._match(TokenType.DOT):
            parts.append(self.name("the rest of the table's name").text)
        name = ".".join(parts)
        for default in DEFAULT_DATABASES:
            if name.lower().startswith(default):
                return Name(name[len(default) :], first.position)
        return Name(name, first.position)

    def string(self, what: str) -> str:
        """Consume a quoted text, or a number."""
        if not self._curr or self._curr.token_type not in _LITERALS:
            if self._curr and self._curr.text[0].isalnum():  # a word: perhaps a secret without its quotes
                self.here().fail(f"expected {what} between quotes")
            self.raise_error(f"expected {what} between quotes")
        self._advance()
        return self._prev.text

    def between_commas(self, parse: Callable[[], T]) -> list[T]:
        """Consume ``(item, …)``."""
        self.expect("(")
        found = [parse()]
        while self._match(TokenType.COMMA):
            found.append(parse())
        self.expect(")")
        return found

    def cut(self, first: Token, last: Token, names: frozenset[str]) -> Query:
        """Return the job's text from one token to another."""
        before = _blanks(self.sql[: first.start])
        return Query(before + self.sql[first.start : last.end + 1], names, self.position(first))

    def rest(self, what: str) -> Query:
        """Consume everything up to the statement's end."""
        return self._cut_while(what, lambda _kind, _depth: True)

    def _expression(self) -> Query:
        """Consume an expression: everything up to a comma, closing bracket or COMMENT of the same level."""
        ends = _CLOSES | {TokenType.COMMA, TokenType.COMMENT}
        return self._cut_while("an expression", lambda kind, depth: depth > 0 or kind not in ends)

    def _cut_while(self, what: str, goes_on: Callable[[TokenType, int], bool]) -> Query:
        """Consume tokens while ``goes_on`` returns True for their kind and the number of open brackets."""
        if not self._curr or not goes_on(self._curr.token_type, 0):
            self.raise_error(f"expected {what}")
        first, depth = self._curr, 0
        names: set[str] = set()
        while self._curr and goes_on(self._curr.token_type, depth):
            depth += (self._curr.token_type in _OPENS) - (self._curr.token_type in _CLOSES)
            if self._curr is first or self._prev.text.upper() != "AS":
                names.add(self._curr.text.lower())
            self._advance()
        return self.cut(first, self._prev, frozenset(names))

    # --- tables -----------------------------------------------------------------------------

    def table(self, start: Token, *, replace: bool, if_not_exists: bool) -> CreateTable:
        """Consume a RocketMQ table, from its name on."""
        self._partitioned, self._keys = None, []
        name = self.name("the table's name")
        if self.next_is("."):
            name.position.fail(
                "a RocketMQ table belongs to the job, not to a database: use a name without a dot"
            )
        columns: list[Column] = []
        watermarks: list[Watermark] = []
        if self.next_is("("):
            for item in self.between_commas(self._item):
                if isinstance(item, Watermark):
                    watermarks.append(item)
                elif item is not None:
                    columns.append(item)
        refuse_twice([column.name for column in columns], "column")
        if len(watermarks) > 1:
            watermarks[1].column.position.fail("a table has one watermark")
        if len(self._keys) > 1:
            self._keys[1][0].position.fail("a table has one PRIMARY KEY: name all columns of it together")
        options, partitions, like = self._clauses(name)
        watermark = watermarks[0] if watermarks else None
        key = self._keys[0] if self._keys else ()
        parts = Parts(tuple(columns), watermark, key, options, partitions)
        if like is not None:
            source = self.tables.get(like.source.key)
            if source is None:
                like.source.position.fail(
                    f"LIKE {like.source.text}: the job declares no such table before it"
                )
            parts = merge_like(parts, like, source)
        connector = next((o for o in parts.options if o.name.lower() == "connector"), None)
        if parts.partitions and (connector is None or not _has_folders(connector)):
            (self._partitioned or name.position).fail("a topic cannot be partitioned by columns")
        return CreateTable(
            name,
            parts.columns,
            check_watermark(parts.watermark, parts.columns) if parts.watermark else None,
            parts.options,
            replace,
            if_not_exists,
            connector is not None,
            "rocketmq" if connector is None else connector.value.lower(),
            parts.partitions,
            self.position(start),
            check_key(parts.key, parts.columns),
        )

    def _clauses(self, table: Name) -> tuple[tuple[TableOption, ...], tuple[Name, ...], Like | None]:
        """Consume what follows the columns: the options, the columns of PARTITIONED BY, and LIKE."""
        options: list[TableOption] = []
        partitions: list[Name] = []
        like: Like | None = None
        while self._curr:
            if self._match_text_seq("USING"):
                self.name("a format")
            elif self._match_text_seq("COMMENT"):
                self.string("a comment")
            elif self._match_text_seq("WITH") or self._match_text_seq("OPTIONS"):
                options += self.between_commas(self._option)
            elif self._match(TokenType.PARTITION_BY):
                if partitions:
                    self.raise_error("expected PARTITIONED BY once")
                self._partitioned = self.position(self._prev)
                partitions = self.between_commas(lambda: self.name("a column"))
            elif self._match(TokenType.LIKE):
                like = self._like()
            else:
                if self.next_is("DISTRIBUTED"):
                    self.raise_error("rows are distributed by their keys: declare PRIMARY KEY, or keyColumns")
                if self.next_is("AS"):
                    self.raise_error(f"declare the columns of {table.text}, then INSERT INTO {table.text}")
                self.raise_error("expected WITH (…) or OPTIONS (…)")
        given: dict[str, TableOption] = {}
        for option in options:
            other = given.setdefault(option.name.lower(), option)
            if other is not option:
                option.position.fail(f"option {option.name!r} of {table.text} is given twice")
        return tuple(options), tuple(partitions), like

    def _like(self) -> Like:
        """Consume ``table [(INCLUDING | EXCLUDING | OVERWRITING part …)]``, the last clause."""
        source, merges = self.table_name(), {}
        if self._match(TokenType.L_PAREN):
            while not self._match(TokenType.R_PAREN):
                merge = self._one_of(MERGES)
                merges[self._one_of(("ALL", *PARTS))] = Merge(merge)
                self._match(TokenType.COMMA)
        if self._curr:
            self.raise_error("LIKE is the last clause: WITH (…) comes before it")
        return Like(source, merges)

    def _one_of(self, words: tuple[str, ...]) -> str:
        if not self._match_texts(words):
            self.raise_error(f"expected {', '.join(words[:-1])} or {words[-1]}")
        return self._prev.text.upper()

    def _option(self) -> TableOption:
        at = self.here()
        name: list[str] = []
        if self._curr and self._curr.token_type in _LITERALS:
            name.append(self.string("an option's name"))
        else:
            name.append(self.name("an option's name").text)
            while self._match(TokenType.DOT):
                name.append(self.name("the rest of the option's name").text)
        self._match(TokenType.EQ)
        sign = "-" if self._match(TokenType.DASH) else ""
        if self._match_texts(("TRUE", "FALSE")):
            return TableOption(".".join(name), self._prev.text.lower(), at)
        return TableOption(".".join(name), sign + self.string("the option's value"), at)

    def _item(self) -> Column | Watermark | None:
        """Consume an item of a table's body; return None for a primary key."""
        if self.next_is("WATERMARK", "FOR"):
            return self._watermark()
        if self._match(TokenType.PRIMARY_KEY, advance=False) or self.next_is("CONSTRAINT"):
            self._keys.append(self._primary_key())
            return None
        return self._column()

    def _primary_key(self) -> tuple[Name, ...]:
        """Consume ``[CONSTRAINT name] PRIMARY KEY (…) NOT ENFORCED``."""
        if self._match_text_seq("CONSTRAINT"):
            self.name("the constraint's name")
        if not self._match(TokenType.PRIMARY_KEY):
            self.raise_error("expected PRIMARY KEY")
        columns = self.between_commas(lambda: self.name("a column"))
        if not self._match_text_seq("NOT", "ENFORCED"):
            self.raise_error("a topic enforces no key: expected NOT ENFORCED")
        return tuple(columns)

    def _watermark(self) -> Watermark:
        self.expect("WATERMARK", "FOR")
        column = self.name("the column of time")
        self.expect("AS")
        if self.name("the column of time").key != column.key:
            self.position(self._prev).fail(f"a watermark is {column.text}, or {column.text} - INTERVAL …")
        if not self._match(TokenType.DASH):
            return Watermark(column, "0 seconds")
        self.expect("INTERVAL")
        amount = self.string("a number")
        unit = self.name("a unit such as SECOND").text
        return Watermark(column, f"{amount} {unit}")

    def _column(self) -> Column:
        name = self.name("a column")
        if self._match(TokenType.ALIAS):
            column: Column = ComputedColumn(name, self._expression())
            self._comment()
            return column
        type_ = self._type(name)
        nullable, virtual = True, False
        metadata: str | None = None
        while self._curr and self._curr.token_type not in {TokenType.COMMA, TokenType.R_PAREN}:
            if self._match_text_seq("NOT", "NULL"):
                nullable = False
            elif self._match_text_seq("NULL"):
                nullable = True
            elif self._match_text_seq("METADATA"):
                metadata = self.string("the metadata's name") if self._match_text_seq("FROM") else name.text
                virtual = bool(self._match_text_seq("VIRTUAL"))
            elif self._match(TokenType.PRIMARY_KEY):
                self.expect("NOT", "ENFORCED")
                self._keys.append((name,))
            elif not self._comment():
                self.raise_error("expected NOT NULL, METADATA, COMMENT or the next column")
        if metadata is not None:
            return MetadataColumn(name, type_, metadata, virtual)
        return PhysicalColumn(name, type_, nullable)

    def _comment(self) -> bool:
        if not self._match_text_seq("COMMENT"):
            return False
        self.string("a comment")
        return True

    def _type(self, column: Name) -> str:
        """Consume a type of Spark or Flink, and return Spark's name of it."""
        at, word = self.here(), self._curr.text if self._curr else ""
        found = self._parse_types(schema=True)
        if not isinstance(found, exp.DataType):
            if word.upper() in INSTEAD_OF_TYPES:
                self._refuse_type(at, column, word.upper())
            self.raise_error(f"expected the type of {column.text}")
        for part in found.find_all(exp.DataType):
            if part.this in _UNKNOWN_TYPES:
                self._refuse_type(at, column, part.this.value)
            if part.this in _TEXTS:
                part.replace(exp.DataType.build("STRING", dialect="spark"))
            elif part.this in _BINARIES:
                part.set("expressions", [])
        if found.this in _TEXTS:
            return "STRING"
        return found.sql(dialect="spark")

    def _refuse_type(self, at: Position, column: Name, kind: str) -> NoReturn:
        instead = INSTEAD_OF_TYPES.get(kind)
        at.fail(f"column {column.text}: unsupported type {kind}{f': {instead}' if instead else ''}")


class JobDialect(Spark):
    """Spark's keywords and Flink's types."""

    class Tokenizer(Spark.Tokenizer):
        """Keeps statements such as SHOW as tokens, so that the parser can cut out their text."""

        COMMANDS: ClassVar[set[TokenType]] = set()
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']  # a doubled quote is one
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **Spark.Tokenizer.KEYWORDS,
            "ROW": TokenType.STRUCT,
            "BYTES": TokenType.VARBINARY,
            "TIMESTAMP_LTZ": TokenType.TIMESTAMP,
        }

    Parser = TableParser


def _has_folders(connector: TableOption) -> bool:
    return connector.value.lower() in CONNECTORS


def _blanks(text: str) -> str:
    """Return as many blanks, with the same line ends."""
    return "".join("\n" if character == "\n" else " " for character in text)
