"""Functions of JSON, rows, arrays and maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark_rocketmq.sql.flinksql.functions.declared import ABSENT, Function, function

__all__ = ["JSON_TEXT", "VALUES"]

JSON_TEXT: Final = r"regexp_replace(to_json(array(_1), map('ignoreNullFields', 'false')), '^\\[|\\]$', '')"
"""A value of any type as JSON: that of an array without its brackets."""


_JSON: Final = "try_variant_get(try_parse_json(_1), regexp_replace(_2, '^(lax|strict) +', ''), '{}')"
_SCALAR: Final = f"NOT regexp_like(schema_of_variant({_JSON.format('variant')}), '^(OBJECT|ARRAY)')"
_SLICE: Final = (
    "CASE WHEN _2 IS NOT NULL THEN slice(_1, {first}, greatest({last} - {first} + 1, 0)) END".format(
        first="CASE WHEN _2 > 0 THEN _2 WHEN _2 = 0 THEN 1 ELSE greatest(size(_1) + _2 + 1, 1) END",
        last="CASE WHEN {0} >= 0 THEN least({0}, size(_1)) ELSE size(_1) + {0} + 1 END",
    )
)

VALUES: Final[Mapping[str, Function]] = {
    "JSON_EXISTS": function(
        ABSENT,
        ("""JSON_EXISTS('{"a": null}', '$.a')""", True),
        ("""JSON_EXISTS('{"a": 1}', 'lax $.b')""", False),
        of2=f"CASE WHEN _1 IS NOT NULL THEN {_JSON.format('variant')} IS NOT NULL END",
    ),
    "JSON_VALUE": function(
        f"{ABSENT}; NULL for an object or array",
        ("""JSON_VALUE('{"a": true}', '$.a')""", "true"),
        ("""JSON_VALUE('{"a": {"b": [1, 2]}}', '$.a.b[1]' RETURNING INT)""", 2),
        ("""JSON_VALUE('{"a": {}}', '$.a')""", None),
        ("JSON_VALUE('no json', '$.a')", None),
        of2=f"CASE WHEN {_SCALAR} THEN {_JSON.format('string')} END",
    ),
    "JSON_QUERY": function(
        f"{ABSENT}; NULL for a scalar",
        ("""JSON_QUERY('{"a": {"b": 1}}', '$.a')""", '{"b":1}'),
        ("""JSON_QUERY('{"a": 1}', '$.a')""", None),
        of2=f"CASE WHEN NOT ({_SCALAR}) THEN to_json({_JSON.format('variant')}) END",
    ),
    "JSON_STRING": function(
        ABSENT,
        ("JSON_STRING('a\"b')", '"a\\"b"'),
        ("JSON_STRING(ARRAY[1, 2])", "[1,2]"),
        ("JSON_STRING(CAST(NULL AS INT))", None),
        (
            "JSON_OBJECT(KEY 'a' VALUE 1, KEY 'b' VALUE NULL, 'c' VALUE JSON_OBJECT())",
            '{"a":1,"b":null,"c":{}}',
        ),
        ("JSON_OBJECT(KEY 'a' VALUE 'x', KEY 'b' VALUE CAST(NULL AS INT) ABSENT ON NULL)", '{"a":"x"}'),
        of1=f"CASE WHEN _1 IS NOT NULL THEN {JSON_TEXT} END",
    ),
    "JSON_ARRAY": function(
        f"{ABSENT}; leaves NULL out",
        ("JSON_ARRAY(1, 'a', NULL, JSON_ARRAY(TRUE))", '[1,"a",[true]]'),
        ("JSON_ARRAY()", "[]"),
        any_number=True,
        of0="concat('[', array_join(CAST(array(_json) AS ARRAY<STRING>), ','), ']')",
    ),
    "ROW": function(ABSENT, ("ROW(1, 'a').col2", "a"), any_number=True, of0="struct(_all)"),
    "ARRAY_REVERSE": function(ABSENT, ("ARRAY_REVERSE(ARRAY[1, 2])", [2, 1]), of1="reverse(_1)"),
    "ARRAY_CONTAINS": function(
        "finds NULL, and is FALSE beside NULL; in Spark NULL",
        ("ARRAY_CONTAINS(ARRAY[1, CAST(NULL AS INT)], 3)", False),
        ("ARRAY_CONTAINS(ARRAY[1, CAST(NULL AS INT)], CAST(NULL AS INT))", True),
        ("ARRAY_CONTAINS(ARRAY[1], 1)", True),
        of2="CASE WHEN _1 IS NOT NULL THEN size(filter(_1, e -> e <=> _2)) > 0 END",
    ),
    "ARRAY_REMOVE": function(
        "removes NULL, too; in Spark the result is then NULL",
        ("ARRAY_REMOVE(ARRAY[1, CAST(NULL AS INT), 2], 2)", [1, None]),
        ("ARRAY_REMOVE(ARRAY[1, CAST(NULL AS INT)], CAST(NULL AS INT))", [1]),
        of2="filter(_1, e -> NOT (e <=> _2))",
    ),
    "ARRAY_CONCAT": function(
        ABSENT, ("ARRAY_CONCAT(ARRAY[1], ARRAY[2])", [1, 2]), any_number=True, of0="concat(_all)"
    ),
    "ARRAY_SORT": function(
        "NULL comes first, and last in falling order; in Spark last, and the second argument is a function",
        ("ARRAY_SORT(ARRAY[2, CAST(NULL AS INT), 1])", [None, 1, 2]),
        ("ARRAY_SORT(ARRAY[2, CAST(NULL AS INT), 1], FALSE)", [2, 1, None]),
        of1="sort_array(_1)",
        of2="sort_array(_1, _2)",
    ),
    "MAP_UNION": function(
        f"{ABSENT}; of a key in both, the second map's value",
        ("MAP_UNION(MAP['a', 1, 'b', 1], MAP['a', 2])", {"a": 2, "b": 1}),
        of2="map_concat(map_filter(_1, (k, v) -> NOT map_contains_key(_2, k)), _2)",
    ),
    "ARRAY_SLICE": function(
        f"{ABSENT}; from and to, both included",
        ("ARRAY_SLICE(ARRAY[1, 2, 3], 2, 3)", [2, 3]),
        ("ARRAY_SLICE(ARRAY[1, 2, 3], -2, -2)", [2]),
        of2=_SLICE.replace("{0}", "size(_1)"),
        of3=_SLICE.replace("{0}", "_3"),
    ),
    "ELEMENT": function(
        ABSENT,
        ("ELEMENT(ARRAY[7])", 7),
        of1="CASE WHEN size(_1) > 1 THEN raise_error('ELEMENT of several elements') ELSE get(_1, 0) END",
    ),
}
