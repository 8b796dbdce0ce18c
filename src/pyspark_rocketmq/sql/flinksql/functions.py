"""Flink's functions as Spark's expressions: a table for the translator, the docs and the tests.

Functions that are not in the table mean the same in both dialects, or exist in Spark only.

# Facts (Flink 1.20 and 2.0, SqlFunctionUtils, BinaryStringDataUtil, docs of the built-in functions;
# Spark 4.3): each entry's `differs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["AGGREGATES", "FUNCTIONS", "UNKNOWN", "Example", "Function"]


@dataclass(frozen=True, slots=True)
class Example:
    """A call in Flink's dialect, and its result there."""

    call: str
    result: Any


@dataclass(frozen=True, slots=True)
class Function:
    """What a call of Flink's means in Spark.

    Parameters
    ----------
    forms : mapping of int to str
        Spark's expression by the number of arguments, which are ``_1``, ``_2``, … in it. A function that
        takes any number has the key 0: ``_all`` are all, ``_null`` is whether one of them is NULL.
    differs : str
        How Spark's function of the same name differs, or that there is none.
    examples : tuple of Example
    any_number : bool
    distinct : mapping of int to str
        The same as `forms`, for a call with DISTINCT. Empty if the function takes none.
    """

    forms: Mapping[int, str]
    differs: str
    examples: tuple[Example, ...]
    any_number: bool = False
    distinct: Mapping[int, str] = field(default_factory=dict)


def _of(differs: str, *examples: tuple[str, Any], any_number: bool = False, **forms: str) -> Function:
    by_count, distinct = (
        {int(name.removeprefix(word)): form for name, form in forms.items() if name.startswith(word)}
        for word in ("of", "distinct")
    )
    return Function(by_count, differs, tuple(Example(*example) for example in examples), any_number, distinct)


_ABSENT: Final = "Spark has no such function"
_GROUP: Final = "CASE WHEN regexp_like(_1, _2) THEN regexp_extract(_1, _2, {}) END"
_QUOTED: Final = r"replace(replace(_3, '\\', '\\\\'), '$', '\\$')"
_PIECES: Final = r"split(nullif(_1, ''), concat('\\Q', _2, '\\E'), -1)"
_CUT: Final = "CASE WHEN {} THEN CASE WHEN _2 < -char_length(_1) THEN '' ELSE substring({}) END END"
_PAD: Final = "CASE WHEN _2 >= 0 AND _3 <> '' THEN {}(_1, _2, _3) END"
_JSON: Final = "try_variant_get(try_parse_json(_1), regexp_replace(_2, '^(lax|strict) +', ''), '{}')"
_SCALAR: Final = f"NOT regexp_like(schema_of_variant({_JSON.format('variant')}), '^(OBJECT|ARRAY)')"
_SECONDS: Final = (
    "CASE WHEN _1 IS NOT NULL THEN coalesce(unix_seconds({}), CAST('-9223372036854775808' AS BIGINT)) END"
)
_SLICE: Final = (
    "CASE WHEN _2 IS NOT NULL THEN slice(_1, {first}, greatest({last} - {first} + 1, 0)) END".format(
        first="CASE WHEN _2 > 0 THEN _2 WHEN _2 = 0 THEN 1 ELSE greatest(size(_1) + _2 + 1, 1) END",
        last="CASE WHEN {0} >= 0 THEN least({0}, size(_1)) ELSE size(_1) + {0} + 1 END",
    )
)
_AVG: Final = (
    "CASE WHEN typeof(any_value(_1)) IN ('tinyint', 'smallint', 'int', 'bigint') "
    "THEN CAST(avg({0}_1) AS BIGINT) ELSE avg({0}_1) END"
)

FUNCTIONS: Final[Mapping[str, Function]] = {
    "REGEXP_EXTRACT": _of(
        "without a match NULL, in Spark ''; the default group is 0, the whole match, in Spark 1. A group "
        "that takes no part in the match is '', in Flink NULL",
        ("REGEXP_EXTRACT('a=1&b=2', '(&|^)b=([^&]*)', 2)", "2"),
        ("REGEXP_EXTRACT('a=1', '(&|^)b=([^&]*)', 2)", None),
        (r"REGEXP_EXTRACT('x17', '([a-z])(\d+)')", "x17"),
        of2=_GROUP.format(0),
        of3=_GROUP.format("_3"),
    ),
    "REGEXP_REPLACE": _of(
        "the replacement is a text; in Spark $1 is a group",
        ("REGEXP_REPLACE('ab', '(a)', '$1x')", "$1xb"),
        (r"REGEXP_REPLACE('a1b22', '\d+', '\')", "a\\b\\"),
        of3=f"regexp_replace(_1, _2, {_QUOTED})",
    ),
    "REGEXP": _of(
        "an empty pattern is FALSE, in Spark TRUE",
        ("REGEXP('ab', 'b')", True),
        ("REGEXP('ab', '')", False),
        of2="(_2 <> '' AND regexp_like(_1, _2))",
    ),
    "SPLIT_INDEX": _of(
        f"{_ABSENT}; counts from 0, NULL outside",
        ("SPLIT_INDEX('a/b//c', '/', 1)", "b"),
        ("SPLIT_INDEX('a/b//c', '/', 2)", ""),
        ("SPLIT_INDEX('a.b', '.', 0)", "a"),
        ("SPLIT_INDEX('a/b', '/', 2)", None),
        ("SPLIT_INDEX('a/b', '/', -1)", None),
        ("SPLIT_INDEX('', '/', 0)", None),
        of3=f"get({_PIECES}, _3)",
    ),
    "SPLIT": _of(
        "the delimiter is a text, in Spark a regular expression",
        ("SPLIT('a.b', '.')", ["a", "b"]),
        of2=r"split(_1, concat('\\Q', _2, '\\E'), -1)",
    ),
    "SUBSTRING": _of(
        "a start before the text gives '', a negative length NULL; Spark gives what is inside, and ''",
        ("SUBSTRING('abc', 2)", "bc"),
        ("SUBSTRING('abc' FROM -2 FOR 1)", "b"),
        ("SUBSTRING('abc', -5, 3)", ""),
        ("SUBSTRING('abc', 1, -1)", None),
        ("SUBSTR('abc', 0, 2)", "ab"),
        of2=_CUT.format("_1 IS NOT NULL", "_1, _2"),
        of3=_CUT.format("_3 >= 0", "_1, _2, _3"),
    ),
    "LPAD": _of(
        "a negative length, or an empty text to fill with, is NULL",
        ("LPAD('hi', 4, '?')", "??hi"),
        ("LPAD('hi', -1, '?')", None),
        ("LPAD('hi', 4, '')", None),
        of3=_PAD.format("lpad"),
    ),
    "RPAD": _of(
        "a negative length, or an empty text to fill with, is NULL",
        ("RPAD('hi', 1, '?')", "h"),
        ("RPAD('hi', 4, '')", None),
        of3=_PAD.format("rpad"),
    ),
    "OVERLAY": _of(
        "a start outside the text changes nothing",
        ("OVERLAY('xxxxxtest' PLACING 'abcd' FROM 6)", "xxxxxabcd"),
        ("OVERLAY('xxxxxtest' PLACING 'abcd' FROM 6 FOR 2)", "xxxxxabcdst"),
        ("OVERLAY('abc' PLACING 'x' FROM 9)", "abc"),
        of3="CASE WHEN _3 BETWEEN 1 AND char_length(_1) THEN overlay(_1, _2, _3) ELSE _1 END",
        of4="CASE WHEN _3 BETWEEN 1 AND char_length(_1) THEN overlay(_1, _2, _3, _4) ELSE _1 END",
    ),
    "INITCAP": _of(
        "a word is a sequence of letters and digits, in Spark what is between blanks",
        ("INITCAP('ab-cD e2f')", "Ab-Cd E2f"),
        of1="array_join(transform({}, w -> initcap(w)), '')".format(
            "regexp_extract_all(_1, '[A-Za-z0-9]+|[^A-Za-z0-9]+', 0)"
        ),
    ),
    "LTRIM": _of(
        "the text comes first, in Spark what is trimmed",
        ("LTRIM('xxa', 'x')", "a"),
        of2="ltrim(_2, _1)",
    ),
    "RTRIM": _of(
        "the text comes first, in Spark what is trimmed",
        ("RTRIM('axx', 'x')", "a"),
        of2="rtrim(_2, _1)",
    ),
    "STR_TO_MAP": _of(
        "the delimiters are , and = by default, in Spark , and :",
        ("STR_TO_MAP('a=1,b=2')", {"a": "1", "b": "2"}),
        of1="str_to_map(_1, ',', '=')",
    ),
    "PARSE_URL": _of(
        "what is no URL gives NULL, in Spark an error",
        ("PARSE_URL('http://a.b/c?k=v#r', 'HOST')", "a.b"),
        ("PARSE_URL('http://a.b/c?k=v', 'QUERY', 'k')", "v"),
        ("PARSE_URL('http://a b/', 'HOST')", None),
        of2="try_parse_url(_1, _2)",
        of3="try_parse_url(_1, _2, _3)",
    ),
    "TO_BASE64": _of(_ABSENT, ("TO_BASE64('ab')", "YWI="), of1="base64(CAST(_1 AS BINARY))"),
    "FROM_BASE64": _of(_ABSENT, ("FROM_BASE64('YWI=')", "ab"), of1="CAST(unbase64(_1) AS STRING)"),
    **{
        f"SHA{bits}": _of(
            _ABSENT, (f"RIGHT(SHA{bits}('a'), 4)", end), of1=f"sha2(CAST(_1 AS BINARY), {bits})"
        )
        for bits, end in ((224, "d6d5"), (256, "48bb"), (384, "5f31"), (512, "9a75"))
    },
    "HASH_CODE": _of(
        _ABSENT,
        ("HASH_CODE('abc')", 96354),
        ("HASH_CODE('a longer text')", 914711941),
        ("HASH_CODE('a\U0001f680b')", 57853662),
        ("HASH_CODE('polygenelubricants')", -(2**31)),
        of1=(
            "CAST(aggregate(transform(filter(split(_1, ''), c -> c <> ''), c -> ascii(c)), 0L, "
            "(h, c) -> (CASE WHEN c < 65536 THEN h * 31 + c "
            "ELSE (h * 31 + 55232 + (c DIV 1024)) * 31 + 56320 + c % 1024 END) & 4294967295L, "
            "h -> CASE WHEN h = 2147483648L THEN -h WHEN h > 2147483648L THEN 4294967296L - h ELSE h END) "
            "AS INT)"
        ),
    ),
    "IS_ALPHA": _of(
        _ABSENT, ("IS_ALPHA('aB')", True), ("IS_ALPHA('a1')", False), of1=r"regexp_like(_1, '^\\p{L}+$')"
    ),
    "IS_DIGIT": _of(
        _ABSENT,
        ("IS_DIGIT('12')", True),
        ("IS_DIGIT('1.2')", False),
        of1=r"regexp_like(_1, '^\\p{IsDigit}+$')",
    ),
    "IS_DECIMAL": _of(
        _ABSENT,
        ("IS_DECIMAL('1.2')", True),
        ("IS_DECIMAL('a')", False),
        of1="(_1 <> '' AND try_cast(_1 AS DOUBLE) IS NOT NULL)",
    ),
    "GREATEST": _of(
        "NULL if one argument is, Spark leaves NULL out",
        ("GREATEST(1, 3, 2)", 3),
        ("GREATEST(1, CAST(NULL AS INT))", None),
        any_number=True,
        of0="CASE WHEN NOT _null THEN greatest(_all) END",
    ),
    "LEAST": _of(
        "NULL if one argument is, Spark leaves NULL out",
        ("LEAST(1, CAST(NULL AS INT))", None),
        ("LEAST(2, 1)", 1),
        any_number=True,
        of0="CASE WHEN NOT _null THEN least(_all) END",
    ),
    "TRUNCATE": _of(
        _ABSENT,
        ("CAST(TRUNCATE(42.324, 2) AS DOUBLE)", 42.32),
        ("CAST(TRUNCATE(-42.9) AS DOUBLE)", -42.0),
        of1="CASE WHEN _1 < 0 THEN ceil(_1, 0) ELSE floor(_1, 0) END",
        of2="CASE WHEN _1 < 0 THEN ceil(_1, _2) ELSE floor(_1, _2) END",
    ),
    "RAND_INTEGER": _of(
        _ABSENT,
        ("RAND_INTEGER(1)", 0),
        of1="CAST(floor(rand() * _1) AS INT)",
        of2="CAST(floor(rand(_1) * _2) AS INT)",
    ),
    "TO_TIMESTAMP": _of(
        "what is no time gives NULL, in Spark an error",
        ("DATE_FORMAT(TO_TIMESTAMP('2026-01-31 08:09:10'), 'HH:mm')", "08:09"),
        ("DATE_FORMAT(TO_TIMESTAMP('31.01.2026', 'dd.MM.yyyy'), 'MM-dd')", "01-31"),
        ("TO_TIMESTAMP('no time')", None),
        of1="try_cast(_1 AS TIMESTAMP)",
        of2="try_to_timestamp(_1, _2)",
    ),
    "TO_DATE": _of(
        "what is no date gives NULL, in Spark an error",
        ("CAST(TO_DATE('2026-01-31') AS STRING)", "2026-01-31"),
        ("TO_DATE('31.13.2026', 'dd.MM.yyyy')", None),
        of1="try_cast(_1 AS DATE)",
        of2="CAST(try_to_timestamp(_1, _2) AS DATE)",
    ),
    "TO_TIMESTAMP_LTZ": _of(
        f"{_ABSENT}; the precision is 0 for seconds, 3 for milliseconds",
        ("UNIX_TIMESTAMP(CAST(TO_TIMESTAMP_LTZ(1700000000, 0) AS STRING))", 1700000000),
        ("TO_TIMESTAMP_LTZ(1700000000123, 3) = TO_TIMESTAMP_LTZ(1700000000123)", True),
        of1="timestamp_millis(_1)",
        of2="CASE _2 WHEN 0 THEN timestamp_seconds(_1) WHEN 3 THEN timestamp_millis(CAST(_1 AS BIGINT)) END",
    ),
    "UNIX_TIMESTAMP": _of(
        "what is no time gives the smallest BIGINT, in Spark an error",
        ("UNIX_TIMESTAMP('1970-01-01 00:00:09')", 9),
        ("UNIX_TIMESTAMP('no time')", -(2**63)),
        of1=_SECONDS.format("try_cast(_1 AS TIMESTAMP)"),
        of2=_SECONDS.format("try_to_timestamp(_1, _2)"),
    ),
    "CONVERT_TZ": _of(
        _ABSENT,
        ("CONVERT_TZ('1970-01-01 00:00:00', 'UTC', 'America/Los_Angeles')", "1969-12-31 16:00:00"),
        of3="date_format(convert_timezone(_2, _3, CAST(_1 AS TIMESTAMP_NTZ)), 'yyyy-MM-dd HH:mm:ss')",
    ),
    "CURRENT_ROW_TIMESTAMP": _of(f"{_ABSENT}; the start of the micro-batch", of0="current_timestamp()"),
    "PROCTIME": _of(f"{_ABSENT}; the start of the micro-batch", of0="current_timestamp()"),
    "JSON_EXISTS": _of(
        _ABSENT,
        ("""JSON_EXISTS('{"a": null}', '$.a')""", True),
        ("""JSON_EXISTS('{"a": 1}', 'lax $.b')""", False),
        of2=f"CASE WHEN _1 IS NOT NULL THEN {_JSON.format('variant')} IS NOT NULL END",
    ),
    "JSON_VALUE": _of(
        f"{_ABSENT}; NULL for an object or array",
        ("""JSON_VALUE('{"a": true}', '$.a')""", "true"),
        ("""JSON_VALUE('{"a": {"b": [1, 2]}}', '$.a.b[1]' RETURNING INT)""", 2),
        ("""JSON_VALUE('{"a": {}}', '$.a')""", None),
        ("JSON_VALUE('no json', '$.a')", None),
        of2=f"CASE WHEN {_SCALAR} THEN {_JSON.format('string')} END",
    ),
    "JSON_QUERY": _of(
        f"{_ABSENT}; NULL for a scalar",
        ("""JSON_QUERY('{"a": {"b": 1}}', '$.a')""", '{"b":1}'),
        ("""JSON_QUERY('{"a": 1}', '$.a')""", None),
        of2=f"CASE WHEN NOT ({_SCALAR}) THEN to_json({_JSON.format('variant')}) END",
    ),
    "ROW": _of(_ABSENT, ("ROW(1, 'a').col2", "a"), any_number=True, of0="struct(_all)"),
    "ARRAY_REVERSE": _of(_ABSENT, ("ARRAY_REVERSE(ARRAY[1, 2])", [2, 1]), of1="reverse(_1)"),
    "ARRAY_CONCAT": _of(
        _ABSENT, ("ARRAY_CONCAT(ARRAY[1], ARRAY[2])", [1, 2]), any_number=True, of0="concat(_all)"
    ),
    "ARRAY_SLICE": _of(
        f"{_ABSENT}; from and to, both included",
        ("ARRAY_SLICE(ARRAY[1, 2, 3], 2, 3)", [2, 3]),
        ("ARRAY_SLICE(ARRAY[1, 2, 3], -2, -2)", [2]),
        of2=_SLICE.replace("{0}", "size(_1)"),
        of3=_SLICE.replace("{0}", "_3"),
    ),
    "ELEMENT": _of(
        _ABSENT,
        ("ELEMENT(ARRAY[7])", 7),
        of1="CASE WHEN size(_1) > 1 THEN raise_error('ELEMENT of several elements') ELSE get(_1, 0) END",
    ),
    "LISTAGG": _of(
        "the delimiter is , by default, in Spark ''; NULL without values; DISTINCT is a set, in no order",
        ("LISTAGG(CAST(a AS STRING))", "1,2,3"),
        ("LISTAGG(CAST(a AS STRING), '-')", "1-2-3"),
        ("LISTAGG(DISTINCT left(CAST(a AS STRING), 0), '-')", ""),
        of1="CASE WHEN count(_1) > 0 THEN array_join(collect_list(_1), ',') END",
        of2="CASE WHEN count(_1) > 0 THEN array_join(collect_list(_1), _2) END",
        distinct1="CASE WHEN count(_1) > 0 THEN array_join(collect_set(_1), ',') END",
        distinct2="CASE WHEN count(_1) > 0 THEN array_join(collect_set(_1), _2) END",
    ),
    "FIRST_VALUE": _of(
        "leaves NULL out",
        ("FIRST_VALUE(b)", "y"),
        ("FIRST_VALUE(DISTINCT b)", "y"),
        of1="first(_1, true)",
        distinct1="first(_1, true)",
    ),
    "LAST_VALUE": _of("leaves NULL out", ("LAST_VALUE(b)", "z"), of1="last(_1, true)"),
    "AVG": _of(
        "of whole numbers a whole number, in Spark DOUBLE",
        ("CAST(AVG(a + 2) AS DOUBLE)", 4.0),
        ("CAST(AVG(a + a) / 3 AS DOUBLE)", 1.0),
        ("CAST(AVG(CASE a WHEN 1 THEN 1 ELSE 2 END) AS DOUBLE)", 1.0),
        ("CAST(AVG(DISTINCT CASE a WHEN 1 THEN 1 ELSE 4 END) AS DOUBLE)", 2.0),
        of1=_AVG.format(""),
        distinct1=_AVG.format("DISTINCT "),
    ),
}
"""By upper-case name. Examples of aggregates are over ``(1, NULL), (2, 'y'), (3, 'z')`` of ``a, b``."""

AGGREGATES: Final = frozenset(
    {
        "ANY_VALUE",
        "APPROX_COUNT_DISTINCT",
        "ARRAY_AGG",
        "AVG",
        "BOOL_AND",
        "BOOL_OR",
        "COLLECT_LIST",
        "COLLECT_SET",
        "COUNT",
    }
    | {
        "EVERY",
        "FIRST",
        "FIRST_VALUE",
        "JSON_ARRAYAGG",
        "JSON_OBJECTAGG",
        "LAST",
        "LAST_VALUE",
        "LISTAGG",
        "MAX",
        "MAX_BY",
    }
    | {"MIN", "MIN_BY", "STDDEV", "STDDEV_POP", "STDDEV_SAMP", "SUM", "VAR_POP", "VAR_SAMP", "VARIANCE"}
)
"""Functions that make a query without GROUP BY an aggregation."""

UNKNOWN: Final[Mapping[str, str]] = {
    "COLLECT": "use collect_list",
    "CURRENT_WATERMARK": "Spark drops late rows itself",
    "GROUP_ID": "use grouping_id()",
    "JSON_ARRAY": "use to_json(array(…))",
    "JSON_ARRAYAGG": "use to_json(collect_list(…))",
    "JSON_OBJECTAGG": "use to_json(map_from_entries(collect_list(struct(…))))",
    "JSON_STRING": "use to_json",
    "KEYVALUE": "use str_to_map(text, ',', '=')['key']",
    "TUMBLE_PROCTIME": "use PROCTIME()",
    "HOP_PROCTIME": "use PROCTIME()",
    "SESSION_PROCTIME": "use PROCTIME()",
}
"""Flink's functions that are refused, and what to use instead."""
