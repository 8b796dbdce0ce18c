"""Literals that Spark does not have: texts with codes of characters, and decimals as texts."""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.statements import Query

__all__ = ["decode_unicode", "is_decimal_literal"]

_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")
_CODE: Final = "(?P<escape>{0}{0})|{0}(?P<code>[0-9a-fA-F]{{4}})|(?P<wrong>{0})"


def decode_unicode(node: exp.UnicodeString, query: Query) -> str:
    r"""Return the text of ``U&'\263A'`` or ``U&'#263A' UESCAPE '#'``.

    Raises
    ------
    SqlError
        An escape character has no four hexadecimal digits after it.
    """
    escape = node.args.get("escape")
    sign = escape.name if isinstance(escape, exp.Expression) else "\\"

    def character(found: re.Match[str]) -> str:
        if found["wrong"]:
            position_of(query, node).fail(
                f"after {sign} in U&'…' there are four hexadecimal digits, or {sign}"
            )
        return sign if found["escape"] else chr(int(found["code"], 16))

    text = re.sub(_CODE.format(re.escape(sign)), character, str(node.this))
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins pairs of surrogates


def is_decimal_literal(node: exp.Cast) -> bool:
    """Return whether a node is ``DECIMAL '1.10'``, which the parser takes for a cast of another class."""
    is_typed_text = type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string
    return is_typed_text and node.to.this == exp.DType.DECIMAL and _DECIMAL.fullmatch(node.name) is not None
