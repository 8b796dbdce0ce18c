"""Functions of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark_rocketmq.sql.flinksql.functions.declared import ABSENT, Function, function

__all__ = ["TEXTS"]

_GROUP: Final = (
    # Spark gives '' for a group without a match. A reference to such a group never matches: after the first
    # match, which (?>…) keeps, the text of the group must come once more.
    "CASE WHEN regexp_like(_1, CASE WHEN _3 = 0 THEN _2 ELSE "
    r"concat('\\A(?>(?s:.*?)(?=', _2, '))(?s:.*?)\\', _3) END) THEN regexp_extract(_1, _2, _3) END"
)
_QUOTED: Final = r"replace(replace(_3, '\\', '\\\\'), '$', '\\$')"
_DELIMITER: Final = (
    "CASE WHEN typeof(_2) = 'string' THEN CAST(_2 AS STRING) ELSE chr(try_cast(_2 AS INT)) END"
)
_BETWEEN: Final = (
    r"CASE WHEN CAST(_2 AS STRING) = '' THEN '\\p{javaWhitespace}' "
    rf"ELSE concat('\\Q', {_DELIMITER}, '\\E') END"
)
_PIECES: Final = f"split(nullif(_1, ''), {_BETWEEN}, -1)"
# Without a length above 0, Flink replaces all that follows.
_OVERLAY: Final = (
    "CASE WHEN _null THEN NULL WHEN _3 BETWEEN 1 AND char_length(_1) "
    "THEN overlay(_1, _2, _3, CASE WHEN {0} > 0 THEN {0} ELSE char_length(_1) END) ELSE _1 END"
)
_CUT: Final = "CASE WHEN {} THEN CASE WHEN _2 < -char_length(_1) THEN '' ELSE substring({}) END END"
_PAD: Final = "CASE WHEN _2 >= 0 AND _3 <> '' THEN {}(_1, _2, _3) END"

TEXTS: Final[Mapping[str, Function]] = {
    "REGEXP_EXTRACT": function(
        "without a match, and for a group that takes no part in it, NULL, in Spark ''; the default group is "
        "0, the whole match, in Spark 1",
        ("REGEXP_EXTRACT('a=1&b=2', '(&|^)b=([^&]*)', 2)", "2"),
        ("REGEXP_EXTRACT('a=1', '(&|^)b=([^&]*)', 2)", None),
        (r"REGEXP_EXTRACT('x17', '([a-z])(\d+)')", "x17"),
        ("REGEXP_EXTRACT('b ab', '(a)?b', 1)", None),
        ("REGEXP_EXTRACT('c ab b', '(a)?b', 1)", "a"),
        ("REGEXP_EXTRACT('xb', '(a*)b', 1)", ""),
        ("REGEXP_EXTRACT('k=1', 'k=(?:([a-z]+)|([0-9]+))', 1)", None),
        ("REGEXP_EXTRACT('k=1', 'k=(?:([a-z]+)|([0-9]+))', 2)", "1"),
        ("REGEXP_EXTRACT('k=1', 'k=', 1)", None),
        of2="CASE WHEN regexp_like(_1, _2) THEN regexp_extract(_1, _2, 0) END",
        of3=_GROUP,
    ),
    "REGEXP_REPLACE": function(
        "the replacement is a text; in Spark $1 is a group",
        ("REGEXP_REPLACE('ab', '(a)', '$1x')", "$1xb"),
        (r"REGEXP_REPLACE('a1b22', '\d+', '\')", "a\\b\\"),
        of3=f"regexp_replace(_1, _2, {_QUOTED})",
    ),
    "REGEXP": function(
        "an empty pattern is FALSE, in Spark TRUE",
        ("REGEXP('ab', 'b')", True),
        ("REGEXP('ab', '')", False),
        of2="(_2 <> '' AND regexp_like(_1, _2))",
    ),
    "SPLIT_INDEX": function(
        f"{ABSENT}; counts from 0, NULL outside; a number is the delimiter's code, and '' any white space",
        ("SPLIT_INDEX('a/b//c', '/', 1)", "b"),
        ("SPLIT_INDEX('a/b//c', '/', 2)", ""),
        ("SPLIT_INDEX('a.b', '.', 0)", "a"),
        ("SPLIT_INDEX('a/b', '/', 2)", None),
        ("SPLIT_INDEX('a/b', '/', -1)", None),
        ("SPLIT_INDEX('a/b', 47, 1)", "b"),
        ("SPLIT_INDEX('', '/', 0)", None),
        ("SPLIT_INDEX('ab c', '', 0)", "ab"),
        ("SPLIT_INDEX('ab  c', '', 1)", ""),
        of3=f"get({_PIECES}, _3)",
    ),
    "SPLIT": function(
        "the delimiter is a text, in Spark a regular expression",
        ("SPLIT('a.b', '.')", ["a", "b"]),
        ("SPLIT('ab', '')", ["a", "b"]),
        of2=r"split(_1, CASE WHEN _2 = '' THEN '' ELSE concat('\\Q', _2, '\\E') END, -1)",
    ),
    "SUBSTRING": function(
        "a start before the text gives '', a negative length NULL; Spark gives what is inside, and ''",
        ("SUBSTRING('abc', 2)", "bc"),
        ("SUBSTRING('abc' FROM -2 FOR 1)", "b"),
        ("SUBSTRING('abc', -5, 3)", ""),
        ("SUBSTRING('abc', 1, -1)", None),
        ("SUBSTR('abc', 0, 2)", "ab"),
        of2=_CUT.format("_1 IS NOT NULL", "_1, _2"),
        of3=_CUT.format("_3 >= 0", "_1, _2, _3"),
    ),
    "LPAD": function(
        "a negative length, or an empty text to fill with, is NULL",
        ("LPAD('hi', 4, '?')", "??hi"),
        ("LPAD('hi', -1, '?')", None),
        ("LPAD('hi', 4, '')", None),
        of3=_PAD.format("lpad"),
    ),
    "RPAD": function(
        "a negative length, or an empty text to fill with, is NULL",
        ("RPAD('hi', 1, '?')", "h"),
        ("RPAD('hi', 4, '')", None),
        of3=_PAD.format("rpad"),
    ),
    "OVERLAY": function(
        "a start outside the text changes nothing, and a length of 0 or less replaces all that follows",
        ("OVERLAY('xxxxxtest' PLACING 'abcd' FROM 6)", "xxxxxabcd"),
        ("OVERLAY('xxxxxtest' PLACING 'abcd' FROM 6 FOR 2)", "xxxxxabcdst"),
        ("OVERLAY('abc' PLACING 'x' FROM 9)", "abc"),
        ("OVERLAY('abc' PLACING 'x' FROM CAST(NULL AS INT))", None),
        ("OVERLAY('abcdef' PLACING 'XY' FROM 3 FOR 0)", "abXY"),
        ("OVERLAY('abcdef' PLACING 'XY' FROM 3 FOR -1)", "abXY"),
        ("OVERLAY('abcdef' PLACING '' FROM 3)", "ab"),
        of3=_OVERLAY.format("char_length(_2)"),
        of4=_OVERLAY.format("_4"),
    ),
    "INITCAP": function(
        "a word is a sequence of letters and digits, in Spark what is between blanks",
        ("INITCAP('ab-cD e2f')", "Ab-Cd E2f"),
        of1="array_join(transform({}, w -> initcap(w)), '')".format(
            "regexp_extract_all(_1, '[A-Za-z0-9]+|[^A-Za-z0-9]+', 0)"
        ),
    ),
    "LTRIM": function(
        "the text comes first, in Spark what is trimmed",
        ("LTRIM('xxa', 'x')", "a"),
        of2="ltrim(_2, _1)",
    ),
    "RTRIM": function(
        "the text comes first, in Spark what is trimmed",
        ("RTRIM('axx', 'x')", "a"),
        of2="rtrim(_2, _1)",
    ),
    "STR_TO_MAP": function(
        "the delimiters are , and = by default, in Spark , and :",
        ("STR_TO_MAP('a=1,b=2')", {"a": "1", "b": "2"}),
        of1="str_to_map(_1, ',', '=')",
    ),
    "PARSE_URL": function(
        "what is no URL gives NULL, in Spark an error",
        ("PARSE_URL('http://a.b/c?k=v#r', 'HOST')", "a.b"),
        ("PARSE_URL('http://a.b/c?k=v', 'QUERY', 'k')", "v"),
        ("PARSE_URL('http://a b/', 'HOST')", None),
        of2="try_parse_url(_1, _2)",
        of3="try_parse_url(_1, _2, _3)",
    ),
    "URL_DECODE": function(
        "what is not encoded gives NULL, in Spark an error",
        ("URL_DECODE('a%20b')", "a b"),
        ("URL_DECODE('%')", None),
        of1="try_url_decode(_1)",
    ),
    "TO_BASE64": function(ABSENT, ("TO_BASE64('ab')", "YWI="), of1="base64(CAST(_1 AS BINARY))"),
    "FROM_BASE64": function(ABSENT, ("FROM_BASE64('YWI=')", "ab"), of1="CAST(unbase64(_1) AS STRING)"),
    **{
        f"SHA{bits}": function(
            ABSENT, (f"RIGHT(SHA{bits}('a'), 4)", end), of1=f"sha2(CAST(_1 AS BINARY), {bits})"
        )
        for bits, end in ((224, "d6d5"), (256, "48bb"), (384, "5f31"), (512, "9a75"))
    },
    "HASH_CODE": function(
        ABSENT,
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
    "IS_ALPHA": function(
        ABSENT, ("IS_ALPHA('aB')", True), ("IS_ALPHA('a1')", False), of1=r"regexp_like(_1, '^\\p{L}+$')"
    ),
    "IS_DIGIT": function(
        ABSENT,
        ("IS_DIGIT('12')", True),
        ("IS_DIGIT('1.2')", False),
        of1=r"regexp_like(_1, '^\\p{IsDigit}+$')",
    ),
    "IS_DECIMAL": function(
        ABSENT,
        ("IS_DECIMAL('1.2')", True),
        ("IS_DECIMAL('a')", False),
        of1="(_1 <> '' AND try_cast(_1 AS DOUBLE) IS NOT NULL)",
    ),
}
