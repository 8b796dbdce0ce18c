"""Numbers in JSON that Spark's parser must not get for their columns."""

# Facts (Spark 4.0 to 4.3, JacksonParser): the number of a DECIMAL is written out before it is compared with
# the type, which takes 17 s for 1e10000000, and hours for larger exponents. The whole number of a TIMESTAMP
# is multiplied by 1,000,000 without a check of overflow, which gives a time of any year. For a STRING, a
# number with an exponent is a double first: "Infinity" or 0.0 if it is out of range.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.spark.bodies.texts import delimiter_pattern

__all__ = ["without_wild_numbers"]

_EXPONENT: Final = "[eE][-+]?0*[1-9][0-9]{4,}"
_WILD_DECIMAL: Final = f"[-+0-9.]+{_EXPONENT}"
_WILD_TEXT: Final = f"{_EXPONENT}|Infinity|^-?0\\.0$"
_LONG_SECONDS: Final = "-?[0-9]{13,}"
_LAST_SECOND: Final = (2**63 - 1) // 1_000_000


def without_wild_numbers(body: Column, fields: Mapping[str, str]) -> Column:
    """Return a body, or NULL if a column of type DECIMAL or TIMESTAMP has a number far out of its range.

    Parameters
    ----------
    body : Column
        A text.
    fields : mapping of str to str
        The type of each field, by its name quoted for Spark.
    """
    decimals = {name for name, kind in fields.items() if kind.upper().startswith("DECIMAL")}
    times = {name for name, kind in fields.items() if kind.upper() in {"TIMESTAMP", "TIMESTAMP_LTZ"}}
    patterns = [
        *_patterns(sorted(decimals), f"[\"']?{_WILD_DECIMAL}"),
        *_patterns(sorted(times), _LONG_SECONDS),
    ]
    if not patterns:
        return body
    # The patterns also match in other objects, and in texts: the parser tells, for these few bodies.
    suspicious = body.rlike("|".join(patterns))
    kinds = {name: "STRING" if name in decimals else "BIGINT" for name in fields if name in decimals | times}
    found = F.from_json(body, ", ".join(f"{name} {kind}" for name, kind in kinds.items()))
    wild = [
        value.rlike(_WILD_TEXT) if kind == "STRING" else ~value.between(-_LAST_SECOND, _LAST_SECOND)
        for value, kind in ((found.getField(_plain(name)), kind) for name, kind in kinds.items())
    ]
    is_wild = reduce(or_, (F.coalesce(each, F.lit(False)) for each in wild))
    return F.when(~F.coalesce(F.when(suspicious, is_wild), F.lit(False)), body)


def _patterns(names: Sequence[str], number: str) -> list[str]:
    if not names:
        return []
    keys = "|".join(delimiter_pattern(_plain(name)) for name in names)
    return [f"[\"'](?:{keys})[\"']\\s*:\\s*{number}"]


def _plain(name: str) -> str:
    """Return a name without Spark's quotes."""
    return name[1:-1].replace("``", "`")
