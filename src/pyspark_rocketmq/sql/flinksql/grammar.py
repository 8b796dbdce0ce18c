"""The grammar of Flink SQL's queries, on sqlglot's parser of Spark's SQL.

Calls keep their name and their arguments: only `functions` gives them a meaning. Nodes that Spark's SQL does
not have are the classes of this module.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any, ClassVar, Final, NoReturn, cast

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError
from sqlglot.parsers.spark import SparkParser

from pyspark_rocketmq.sql.statements import Position, Query, show_token

__all__ = ["RoundTime", "WindowTable", "parse_expression", "parse_query", "position_of"]

_INTERVALS: Final = {
    "TUMBLE": ("size", "offset"),
    "HOP": ("slide", "size", "offset"),
    "CUMULATE": ("step", "size", "offset"),
    "SESSION": ("size",),
}
"""The intervals of each window table function in their order."""

_OPTIONS_HINT: Final = re.compile(r"\s*OPTIONS\s*\(", re.IGNORECASE)
_PREFIX: Final = re.compile(r"[EN]|_\w+", re.IGNORECASE)
_LONGEST_INTERVAL: Final = 100
"""Characters of its number. sqlglot takes a time that grows with their square."""

_NAMED: Final = {"GAP": "size", "SIZE": "size", "SLIDE": "slide", "STEP": "step", "OFFSET": "offset"}

_OF_NODES: Final = re.compile(r"Required keyword: .*")
_OF_TOKENS: Final = re.compile(r" but got <Token .*")
"""What sqlglot's messages say of classes that users do not know."""

_AFTER_PARTITION: Final = frozenset({"DESCRIPTOR", "TIMECOL"})


class WindowTable(exp.Expression):
    """``TABLE(TUMBLE(TABLE source, DESCRIPTOR(column), size))`` and its kin."""

    arg_types: ClassVar[dict[str, bool]] = {
        **dict.fromkeys(("this", "kind", "column", "size"), True),
        **dict.fromkeys(("slide", "step", "offset", "partition", "alias", "at"), False),
    }


class RoundTime(exp.Expression):
    """``FLOOR(time TO unit)`` and ``CEIL(time TO unit)``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "unit": True, "up": True}


class _QueryParser(SparkParser):
    FUNC_TOKENS: ClassVar[set[TokenType]] = {*SparkParser.FUNC_TOKENS, TokenType.SESSION}
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        **{
            name: SparkParser.FUNCTION_PARSERS[name]
            for name in ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "TRIM", "JSON_OBJECT")
        },
        "JSON_ARRAY": lambda self: self.without_clauses("JSON_ARRAY", "ABSENT ON NULL"),
        "JSON_ARRAYAGG": lambda self: self.without_clauses("JSON_ARRAYAGG"),
        "JSON_EXISTS": lambda self: self.without_clauses("JSON_EXISTS", "FALSE ON ERROR"),
        "JSON_OBJECTAGG": lambda self: self.without_clauses("JSON_OBJECTAGG"),
        "JSON_QUERY": lambda self: self.without_clauses(
            "JSON_QUERY", "WITHOUT ARRAY WRAPPER", "WITHOUT WRAPPER", "NULL ON EMPTY", "NULL ON ERROR"
        ),
        "CEIL": lambda self: self.rounded("CEIL"),
        "CEILING": lambda self: self.rounded("CEILING"),
        "FLOOR": lambda self: self.rounded("FLOOR"),
        "JSON_VALUE": lambda self: self._parse_json_value(json_path=False),
        "OVERLAY": lambda self: self.spelled("OVERLAY", "PLACING", "FROM", "FOR"),
        "SUBSTRING": lambda self: self.spelled("SUBSTRING", "FROM", "FOR"),
    }

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        at = self._curr if token is None or token is self._prev else token
        found = show_token(at) if at else "the end of the query"
        reason = _OF_TOKENS.sub("", _OF_NODES.sub("an expression is missing", message))
        self.fail(at or self._prev, f"{reason}, found {found}")

    def fail(self, token: Token, message: str) -> NoReturn:
        raise ParseError(message, [{"start": token.start}])

    def _parse_types(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        if self._prev.text.upper() in {"AS", "RETURNING"}:
            kwargs = {**kwargs, "schema": True}  # keeps the length of VARCHAR(3)
        return super()._parse_types(*args, **kwargs)

    def spelled(self, name: str, *words: str) -> exp.Anonymous:
        """Consume arguments between commas or these words."""
        arguments = [] if self._curr.token_type == TokenType.R_PAREN else [self._parse_lambda()]
        while self._match(TokenType.COMMA) or any(self._match_text_seq(word) for word in words):
            arguments.append(self._parse_lambda())
        return exp.Anonymous(this=name, expressions=arguments)

    def without_clauses(self, name: str, *defaults: str) -> exp.Anonymous:
        """Consume arguments, and clauses that say what is so without them."""
        self._match_text_seq("KEY")  # of JSON_OBJECTAGG, which is refused by its name
        call = self.spelled(name, "VALUE")
        while any(self._match_text_seq(*default.split()) for default in defaults):
            pass
        if self._curr and self._curr.token_type != TokenType.R_PAREN:
            known = f", except {', '.join(defaults)}" if defaults else ""
            at = Position.of(self.sql, self._curr.start)
            at.fail(f"{name}(… {self._curr.text.upper()} …): clauses of {name} are not supported{known}")
        return call

    def rounded(self, name: str) -> exp.Expression:
        """Consume the arguments of ``FLOOR`` or ``CEIL``."""
        call = self.spelled(name)
        if not self._match_text_seq("TO"):
            return call
        unit = self._parse_var()
        if unit is None or len(call.expressions) != 1:
            self.raise_error(f"{name}(time TO unit) takes a time and a unit")
        return RoundTime(this=call.expressions[0], unit=unit, up=name != "FLOOR")

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        found = self._window_table()
        if found is None:
            if self._next.text.upper() == "MATCH_RECOGNIZE":
                self._advance()
                self.fail(
                    self._curr,
                    "MATCH_RECOGNIZE has no counterpart in Spark: use a self-join over an interval of time, "
                    "or transformWithState in a program",
                )
            return super()._parse_table(*args, **kwargs)
        found.set("alias", self._parse_table_alias())
        return found

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        found = super()._parse_join(*args, **kwargs)
        without = self._prev.token_type in {TokenType.ON, TokenType.USING}
        if found is not None and (without or found.args.get("using") == []):
            # sqlglot takes such a join for one of all pairs of rows.
            self.raise_error("the join's condition is missing")
        return found

    def _parse_lateral(self) -> exp.Expr | None:  # type: ignore[override]
        if not self._match_text_seq("LATERAL", "TABLE", "("):
            return super()._parse_lateral()
        call = self._parse_function()
        self._match_r_paren()
        return exp.Lateral(this=call, alias=self._parse_table_alias())

    def _window_table(self) -> WindowTable | None:
        index, start = self._index, self._curr
        wrapped = bool(self._match_text_seq("TABLE", "("))
        kind = self._curr.text.upper()
        if kind not in _INTERVALS or self._next.token_type != TokenType.L_PAREN:
            self._retreat(index)
            return None
        self._advance(2)
        if not wrapped and self._curr.text.upper() not in {"TABLE", "DATA"}:
            self._retreat(index)
            return None
        found: dict[str, Any] = {"kind": kind, "at": start.start}
        names = list(_INTERVALS[kind])
        while True:
            self._window_argument(kind, names, found)
            if not self._match(TokenType.COMMA):
                break
        self._match_r_paren()
        if wrapped:
            self._match_r_paren()
        for part, what in (("this", "TABLE …"), ("column", "DESCRIPTOR(…)"), ("size", "size")):
            if part not in found:
                self.fail(start, f"{kind} is given no {what}")
        return WindowTable(**found)

    def _window_argument(self, kind: str, names: list[str], found: dict[str, Any]) -> None:
        named = None
        if self._next.token_type == TokenType.FARROW:
            named = self._curr.text.upper()
            self._advance(2)
        if self._match_text_seq("TABLE"):
            found["this"] = self._parse_table()
            if self._match(TokenType.PARTITION_BY):
                found["partition"] = exp.Tuple(expressions=self._partition())
        elif self._match_text_seq("DESCRIPTOR", "("):
            columns = self._parse_csv(self._parse_column)
            self._match_r_paren()
            self._descriptor(kind, columns, found, is_key=named == "KEY")
        elif self._curr.token_type == TokenType.INTERVAL and (names or named):
            name = _NAMED.get(named) if named else names[0]
            if name not in names:
                self.raise_error(f"{kind} has no parameter {named}")
            names.remove(name)
            found[name] = self._parse_interval()
        else:
            self.raise_error(f"{kind} takes TABLE …, DESCRIPTOR(…) and intervals")

    def _partition(self) -> list[exp.Expr | None]:
        """Consume the columns of PARTITION BY, which other arguments may follow."""
        wrapped = bool(self._match(TokenType.L_PAREN))
        columns = [self._parse_column()]
        while self._next and (wrapped or self._next.text.upper() not in _AFTER_PARTITION):
            if not self._match(TokenType.COMMA):
                break
            columns.append(self._parse_column())
        if wrapped:
            self._match_r_paren()
        return columns

    def _descriptor(self, kind: str, columns: list[Any], found: dict[str, Any], *, is_key: bool) -> None:
        """Note the column with the time; a second DESCRIPTOR, an early form, has the keys of SESSION."""
        if is_key or "column" in found:
            if kind != "SESSION" or "partition" in found:
                self.raise_error(f"{kind} takes one DESCRIPTOR, of the column with the time")
            found["partition"] = exp.Tuple(expressions=columns)
        elif len(columns) == 1:
            (found["column"],) = columns
        else:
            self.raise_error("the DESCRIPTOR of the time names one column")


class _QueryDialect(Spark):
    class Tokenizer(Spark.Tokenizer):
        """A backslash in a text is a backslash."""

        QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'"]
        STRING_ESCAPES: ClassVar[list[str]] = ["'"]
        RAW_STRINGS: ClassVar[list[str | tuple[str, str]]] = []
        UNICODE_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("U&'", "'"), ("u&'", "'")]
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **Spark.Tokenizer.KEYWORDS,
            "ROW": TokenType.STRUCT,
            "BYTES": TokenType.VARBINARY,
            "TIMESTAMP_LTZ": TokenType.TIMESTAMP,
        }

    Parser = _QueryParser


def parse_query(query: Query) -> exp.Expression:
    """Return the tree of a query.

    Raises
    ------
    ParseError, TokenError
        It is no query of this grammar.
    SqlError
        It has a hint that would be ignored, or an interval that is too long.
    """
    dialect = _QueryDialect()
    parser = _QueryParser(dialect=dialect)
    tokens = dialect.tokenize(query.padded)
    for token, after in itertools.pairwise(tokens):
        if after.token_type == TokenType.STRING and after.start == token.end + 1:
            _check_prefix(query, token)
        if token.token_type == TokenType.INTERVAL and len(after.text) > _LONGEST_INTERVAL:
            Position.of(query.padded, after.start).fail(
                f"an interval of {len(after.text)} characters is too long: INTERVAL '10' SECOND"
            )
    for token in tokens:
        if any(_OPTIONS_HINT.match(comment) for comment in token.comments):
            Position.of(query.padded, token.start).fail(
                "the hint OPTIONS is not supported: write these options in WITH (…) of the table"
            )
    (tree,) = parser.parse(tokens, query.padded)
    if not isinstance(tree, exp.Query | exp.Values):
        raise ParseError("this is no query")
    return cast("exp.Expression", tree)


def _check_prefix(query: Query, token: Token) -> None:
    """Refuse a text with a prefix, such as ``E'a'``.

    Raises
    ------
    SqlError
    """
    if _PREFIX.fullmatch(token.text):
        Position.of(query.padded, token.start).fail(
            f"texts with the prefix {token.text} are not supported: write the characters in the text itself, "
            "or as U&'\\000a'"
        )


def parse_expression(text: str) -> exp.Expression:
    """Return the tree of an expression in Spark's SQL, as this package writes it."""
    dialect = Spark()
    parser = _QueryParser(dialect=dialect)
    (parsed,) = parser.parse_into(exp.Condition, dialect.tokenize(text))
    tree = cast("exp.Expression", parsed)
    for node in tree.walk():
        node.meta.clear()  # its places are not the job's
    return tree


def position_of(query: Query, node: exp.Expression) -> Position:
    """Return where a node begins in the job."""
    starts = [
        part.args["at"] if isinstance(part, WindowTable) else part.meta.get("start") for part in node.walk()
    ]
    known = [start for start in starts if start is not None]
    return Position.of(query.padded, min(known)) if known else query.position
