"""Parse a job's text to statements."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import Token, TokenType, exp
from sqlglot.errors import TokenError
from sqlglot.parser import Parser

from pyspark_rocketmq.sql.dialect import CONNECTORS, DEFAULT_DATABASES, FORMATS, JobDialect, TableParser
from pyspark_rocketmq.sql.refusals.flink_statements import INSTEAD_OF_CONNECTORS, instead_of_statement
from pyspark_rocketmq.sql.statements import (
    CreateFunction,
    CreateTable,
    CreateView,
    DropTable,
    Insert,
    Name,
    Position,
    Query,
    Reset,
    Set,
    SparkStatement,
    Statement,
)

__all__ = ["note_table", "parse_statements"]

_QUERY_STARTS: Final = (
    "SELECT",
    "WITH",
    "FROM",
    "VALUES",
    "TABLE",
    "(",
    "SHOW",
    "DESCRIBE",
    "DESC",
    "EXPLAIN",
)
_TIMES: Final = frozenset({"TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"})
_BEFORE_CALLS: Final = frozenset(
    {"SELECT", "DISTINCT", "WHERE", "BY", "AND", "OR", "ON", "THEN", "ELSE", "WHEN"}
)
_MICROSECONDS: Final = 6
_LONGEST_NUMBER: Final = 1_000
"""In characters. Python converts texts of up to 4,300 digits, and no type of Spark needs as much as 1,000."""

_MOST_WORDS: Final = 3
_ESCAPED_QUOTE: Final = (
    " A quote after a backslash closes no text: write U&'\\005C' for a text that ends with a backslash"
)
_OPTIONS_HINT: Final = re.compile(r"\s*\+?\s*OPTIONS\s*\(", re.IGNORECASE)
_CONNECTOR_NAMES: Final = ", ".join(sorted(FORMATS | CONNECTORS))
_SET_BEGINS: Final = (["EXECUTE", "STATEMENT", "SET", "BEGIN"], ["BEGIN", "STATEMENT", "SET"])
_LANGUAGES: Final = frozenset({"python", "java", "scala"})
_SUBQUERY_STARTS: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "("})


def parse_statements(text: str, declared: Mapping[str, CreateTable] | None = None) -> tuple[Statement, ...]:
    """Parse a job: statements, separated by semicolons.

    Parameters
    ----------
    text : str
    declared : mapping of str to CreateTable, optional
        Tables of earlier texts, which LIKE can name, by name in lower case.

    Raises
    ------
    SqlError
        One of our statements is invalid. Spark checks queries when they run.
    """
    dialect = JobDialect()
    try:
        tokens = dialect.tokenize(text)
    except TokenError as error:
        end = getattr(error, "end", None)
        escaped = "\\'" in text
        Position.of(text, len(text) if end is None else end).fail(
            "the text cannot be split into words: is a quote or a comment not closed?"
            f"{_ESCAPED_QUOTE if escaped else ''}"
        )
    for token in tokens:
        if token.token_type == TokenType.NUMBER and len(token.text) > _LONGEST_NUMBER:
            Position.of(text, token.start).fail(f"a number has at most {_LONGEST_NUMBER:,} digits")
        if any(_OPTIONS_HINT.match(comment) for comment in token.comments):
            Position.of(text, token.start).fail(
                "the hint OPTIONS is not supported: write these options in WITH (…) of the table"
            )
    _check_statement_sets(tokens, text)
    parser = _JobParser(dialect=dialect)
    return parser.job(tokens, text, declared or {})


def _check_statement_sets(tokens: Sequence[Token], text: str) -> None:
    """Check that each statement set has a begin and an end. The parser passes over both."""
    begun: Position | None = None
    start = 0
    words: list[str] = []
    for at, token in enumerate(tokens):
        if token.token_type == TokenType.SEMICOLON:
            words = []
            continue
        start = start if words else token.start
        words.append(token.text.upper())
        if words in _SET_BEGINS:
            if begun is not None:
                begun.fail("this statement set has no end: END follows its last INSERT")
            begun = Position.of(text, start)
        elif words == ["END"] and all(
            each.token_type == TokenType.SEMICOLON for each in tokens[at + 1 : at + 2]
        ):
            if begun is None:
                Position.of(text, token.start).fail(
                    "END belongs to EXECUTE STATEMENT SET BEGIN: none is open"
                )
            begun = None
    if begun is not None:
        begun.fail("this statement set has no end: END follows its last INSERT")


def note_table(declared: dict[str, CreateTable], statement: Statement) -> None:
    """Note a table that a statement declares, or forget one that it drops: LIKE can name it."""
    match statement:
        case CreateTable() if not (statement.if_not_exists and statement.name.key in declared):
            declared[statement.name.key] = statement
        case DropTable() if not statement.is_view:
            declared.pop(statement.name.key, None)


class _JobParser(TableParser):
    """Parses one statement per chunk of tokens."""

    def job(
        self, tokens: list[Token], text: str, declared: Mapping[str, CreateTable]
    ) -> tuple[Statement, ...]:
        """Parse all statements."""
        found: list[Statement] = []
        self.tables = dict(declared)
        self._functions: set[str] = set()

        def one(_: Parser) -> exp.Expr | None:
            if not self._match(TokenType.SEMICOLON):  # present if a comment is attached to it
                for statement in self._statements():
                    note_table(self.tables, statement)
                    if isinstance(statement, CreateFunction):
                        self._functions.add(statement.name.key)
                    found.append(statement)
            return None

        self._parse(one, tokens, text)
        return tuple(found)

    def _statements(self) -> list[Statement]:
        if self._match_text_seq("EXECUTE", "STATEMENT", "SET", "BEGIN") or self._match_text_seq(
            "BEGIN", "STATEMENT", "SET"
        ):
            pass  # each INSERT is a separate query anyway
        elif self.next_is("END") and not self._next:
            self._advance()
        return [self._statement()] if self._curr else []

    def _statement(self) -> Statement:
        start = self._curr
        if self.next_is("CREATE"):
            return self._create()
        if self._match_text_seq("INSERT"):
            return self._insert(start)
        if self._match_text_seq("SET"):
            return self._set(start)
        if self._match_text_seq("RESET"):
            return Reset(self._setting_name() if self._curr else None, self.position(start))
        if self.next_is("DROP"):
            return self._drop(start)
        return self._of_spark()

    def _of_spark(self) -> SparkStatement:
        start, first = self._curr, self._index
        if found := instead_of_statement([token.text for token in self._tokens[first : first + _MOST_WORDS]]):
            name, instead = found
            self.position(start).fail(f"{name} is Flink's, and not supported: {instead}")
        is_query = start.text.upper() in _QUERY_STARTS
        whole = self.rest("a statement")
        if not is_query:
            whole = _without_precision(whole, self._tokens[first : self._index])
        return SparkStatement(whole, is_query, self.position(start))

    # --- CREATE -----------------------------------------------------------------------------

    def _create(self) -> Statement:
        index, start = self._index, self._curr
        self._advance()
        replace = bool(self._match_text_seq("OR", "REPLACE"))
        self._match_text_seq("GLOBAL")
        self._match_texts(("TEMPORARY", "TEMP"))
        self._match_text_seq("SYSTEM")
        if self._match_text_seq("FUNCTION"):
            return self._function(start, index)
        view = bool(self._match_text_seq("VIEW"))
        if not view and not self._match_text_seq("TABLE"):
            self._retreat(index)
            return self._of_spark()
        if_not_exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        found: Statement | None = None
        if view:
            found = self._view(start, replace=replace, if_not_exists=if_not_exists)
        elif self._is_ours():
            found = self.table(start, replace=replace, if_not_exists=if_not_exists)
        if found is None:
            self._retreat(index)
            return self._of_spark()
        return found

    def _function(self, start: Token, index: int) -> Statement:
        """Consume ``name AS 'path' [LANGUAGE …] [USING JAR …]``. Others are passed to Spark."""
        self._match_text_seq("IF", "NOT", "EXISTS")
        name = self.table_name()
        if not self._match_text_seq("AS") or not self._curr or self._curr.token_type != TokenType.STRING:
            self._retreat(index)
            return self._of_spark()
        path, language = self.string("a function"), None
        if self._match_text_seq("LANGUAGE"):
            language = self.name("a language")
            if language.key not in _LANGUAGES:
                language.position.fail(f"{language.text!r} is not one of PYTHON, JAVA, SCALA")
        jars = self._jars()
        is_python = language is not None and language.key == "python"
        if language is not None and is_python and jars:
            language.position.fail("a Python function is in no jar: its module is on PYTHONPATH")
        whole = None if language else self.cut(start, self._prev, frozenset())
        return CreateFunction(name, path, self.position(start), is_python, jars, whole)

    def _jars(self) -> tuple[str, ...]:
        """Consume ``USING JAR 'a', JAR 'b'``."""
        jars: list[str] = []
        while self._match_text_seq("USING", "JAR") or (
            jars and self._match_text_seq(",") and self._match_text_seq("JAR")
        ):
            jars.append(self.string("a jar"))
        if self._curr:
            self.raise_error("expected LANGUAGE, USING JAR, or the end of the statement")
        return tuple(jars)

    def _is_ours(self) -> bool:
        """Return whether a table is a RocketMQ table, by its USING or its 'connector'."""
        tokens = self._tokens[self._index :]
        words = [token.text.lower() for token in tokens]
        for at, word in enumerate(words):
            if word == "using" and tokens[at].token_type == TokenType.USING:
                return "".join(words[at + 1 : at + 6]).startswith(tuple(FORMATS))
            if word == "connector" and at + 2 < len(words):
                value = tokens[at + 2] if words[at + 1] == "=" else tokens[at + 1]
                known = sorted(FORMATS | CONNECTORS)
                if value.text.lower() not in known:
                    instead = INSTEAD_OF_CONNECTORS.get(
                        value.text.lower(), "other sources are Spark's, CREATE TABLE … USING …"
                    )
                    self.position(value).fail(
                        f"connector {value.text!r} is not one of {', '.join(known)}: {instead}"
                    )
                return True
        if self._is_like_ours(tokens):
            return True
        for token, following in itertools.pairwise(tokens):
            if token.text.upper() == "WITH" and following.token_type == TokenType.L_PAREN:
                self.position(token).fail(f"WITH (…) needs 'connector', one of {_CONNECTOR_NAMES}")
        return False

    def _is_like_ours(self, tokens: Sequence[Token]) -> bool:
        """Return whether a table is LIKE one of the job."""
        depth = 0
        for token, following in itertools.pairwise(tokens):
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            if depth == 0 and token.token_type == TokenType.LIKE:
                names = "".join(each.text for each in tokens[tokens.index(following) :]).lower()
                return following.text.lower() in self.tables or any(
                    names.startswith(f"{default}{name}")
                    for default in DEFAULT_DATABASES
                    for name in self.tables
                )
        return False

    def _view(self, start: Token, *, replace: bool, if_not_exists: bool) -> CreateView | None:
        """Consume ``name [(columns)] [COMMENT 'text'] AS query``. Other views are passed to Spark."""
        name = self.name("the view's name")
        columns: list[Name] = []
        if self.next_is("("):
            columns = self.between_commas(self._view_column)
        self._comment()
        if not self._match_text_seq("AS"):
            return None
        query = self.rest("a query")
        return CreateView(name, query, replace, if_not_exists, self.position(start), tuple(columns))

    def _view_column(self) -> Name:
        column = self.name("a column")
        self._comment()
        return column

    def _drop(self, start: Token) -> DropTable | SparkStatement:
        """Consume ``DROP [TEMPORARY] TABLE | VIEW [IF EXISTS] name``. Others are passed to Spark."""
        index, at = self._index, self.position(start)
        self._advance()
        temporary = bool(self._match_texts(("TEMPORARY", "TEMP")))
        of_system = temporary and bool(self._match_text_seq("SYSTEM"))
        if self._match_text_seq("FUNCTION") and (of_system or self._is_function()):
            if_exists = "IF EXISTS " if self._match_text_seq("IF", "EXISTS") else ""
            name = self.name("the function's name")
            whole = self.cut(start, self._prev, frozenset())
            return SparkStatement(
                _reworded(whole, f"DROP TEMPORARY FUNCTION {if_exists}{name.text}"), False, at
            )
        kind = self._curr.text.upper() if self._curr else ""
        if not self._match_texts(("TABLE", "VIEW")):
            self._retreat(index)
            return self._of_spark()
        exists = bool(self._match_text_seq("IF", "EXISTS"))
        name = self.table_name()
        if self._curr:
            self._retreat(index)
            return self._of_spark()
        whole = self.cut(start, self._prev, frozenset({name.key}))
        if temporary:  # Spark has no such word here
            text = whole.text[whole.text.upper().index(kind) :]
            whole = _reworded(whole, f"DROP {text}")
        return DropTable(name, exists, whole, at, is_view=kind == "VIEW")

    def _is_function(self) -> bool:
        """Return whether a function of the job comes next: Spark knows it as a temporary one."""
        index = self._index
        self._match_text_seq("IF", "EXISTS")
        found = self._curr is not None and self.table_name().key in self._functions
        self._retreat(index)
        return found

    # --- INSERT, SET ------------------------------------------------------------------------

    def _insert(self, start: Token) -> Insert:
        overwrite = bool(self._match_text_seq("OVERWRITE"))
        if not overwrite:
            self.expect("INTO")
        self._match_text_seq("TABLE")
        target = self.table_name()
        columns: list[Name] = []
        if self.next_is("(") and self._next.text.upper() not in _SUBQUERY_STARTS:
            columns = self.between_commas(lambda: self.name("a column"))
        query = self.rest("a query")
        whole = self.cut(start, self._prev, query.names)
        return Insert(target, tuple(columns), overwrite, query, whole, self.position(start))

    def _set(self, start: Token) -> Set | SparkStatement:
        if not self._curr:
            whole = self.cut(start, start, frozenset())
            return SparkStatement(whole, is_query=True, position=self.position(start))
        name = self._setting_name()
        self.expect("=")
        if self._curr and not self._next and self._curr.token_type == TokenType.STRING:
            return Set(name, self.string("a value"), self.position(start))
        return Set(name, self.rest("a value").text, self.position(start))

    def _setting_name(self) -> str:
        """Consume a setting's name: quoted, or everything up to ``=``."""
        if self._curr and self._curr.token_type == TokenType.STRING:
            return self.string("a setting")
        first = self._curr
        if not first or first.token_type == TokenType.EQ:
            self.raise_error("expected a setting's name")
        while self._curr and self._curr.token_type != TokenType.EQ:
            self._advance()
        return self.sql[first.start : self._prev.end + 1]


def _reworded(statement: Query, text: str) -> Query:
    """Return a statement with other words in its place."""
    return replace(statement, padded=statement.padded[: -len(statement.text)] + text)


def _without_precision(statement: Query, tokens: Sequence[Token]) -> Query:
    """Blank out the precision of Flink's ``TIMESTAMP(3)``, which definitions of Spark's tables lack."""
    text = statement.padded
    for before, kind, start, digits, end in zip(*(tokens[at:] for at in range(5)), strict=False):
        is_type = kind.text.upper() in _TIMES and start.token_type == TokenType.L_PAREN
        in_definition = before.text == ":" or (
            before.text.isidentifier() and before.text.upper() not in _BEFORE_CALLS
        )
        if is_type and in_definition and digits.text.isdecimal() and int(digits.text) <= _MICROSECONDS:
            length = end.end + 1 - start.start
            text = text[: start.start] + " " * length + text[end.end + 1 :]
    return replace(statement, padded=text)
