"""Functions of numbers and of times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark_rocketmq.sql.flinksql.functions.declared import ABSENT, Function, function

__all__ = ["NO_LETTERS", "TIMES"]

NO_LETTERS: Final = frozenset("ABNWYcenpuw")
"""Letters of patterns of times that Java has, and Spark has not."""

_CLOCK: Final = "[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}"
_TIME: Final = (
    f"try_cast(regexp_extract(_1, '^[0-9]{{4}}-[0-9]{{1,2}}-[0-9]{{1,2}}( {_CLOCK}([.][0-9]{{0,9}})?)?$', 0) "
    "AS TIMESTAMP)"
)
"""The time that a text is. Spark takes less for one: ``08:09`` is that time today, and ``2026`` a day."""

_TIME_BEFORE_REST: Final = (
    f"try_cast(regexp_extract(CAST(_1 AS STRING), '^ *[0-9]+-[0-9]{{1,2}}-[0-9]{{1,2}} {_CLOCK}', 0) "
    "AS TIMESTAMP)"
)
"""The time, in whole seconds, with which a text begins."""

_SECONDS: Final = (
    "CASE WHEN _1 IS NOT NULL THEN coalesce(unix_seconds({}), CAST('-9223372036854775808' AS BIGINT)) END"
)
_OF_MILLIS: Final = "timestamp_millis(CASE WHEN {0} BETWEEN -62167219200000 AND 253402300799999 THEN {0} END)"
_OF_SECONDS: Final = "timestamp_seconds(CASE WHEN {0} BETWEEN -62167219200 AND 253402300799 THEN {0} END)"
"""A time of the years 0 to 9999. Nanoseconds taken for milliseconds are none: as a watermark, their year
would make all rows that follow late."""

_LOCAL: Final = (
    "CASE WHEN typeof(_2) = 'string' THEN try_to_timestamp(CAST(_1 AS STRING), CAST(_2 AS STRING)) "
    f"ELSE CASE try_cast(_2 AS INT) WHEN 0 THEN {_OF_SECONDS.format('try_cast(_1 AS DECIMAL(20, 6))')} "
    f"WHEN 3 THEN {_OF_MILLIS.format('try_cast(_1 AS BIGINT)')} END END"
)

_LOG: Final = "CASE WHEN _1 = 0 THEN double('-Infinity') WHEN _1 < 0 THEN double('NaN') ELSE {} END"
_LOG_DIFFERS: Final = "-Infinity for 0, NaN for a negative number, in Spark NULL"
_INFINITE: Final = float("-inf")

_KEEPS_TYPE: Final = "keeps the type, in Spark BIGINT for a DOUBLE, whose values above 2^63 it cuts"
_FLOOR: Final = "(round(_1, 0) - CASE WHEN round(_1, 0) > _1 THEN 1 ELSE 0 END)"
_CEIL: Final = "(round(_1, 0) + CASE WHEN round(_1, 0) < _1 THEN 1 ELSE 0 END)"
_TRUNCATED: Final = (  # an expression has one type: this one is not DOUBLE for a DECIMAL
    "variant_get(CAST(CASE WHEN abs(round(_1, _2)) > abs(_1) THEN "
    "round(round(_1, _2) - sign(_1) * power(10, -_2), _2) ELSE round(_1, _2) END AS VARIANT), '$', "
    "typeof(round(_1, _2)))"
)

TIMES: Final[Mapping[str, Function]] = {
    "GREATEST": function(
        "NULL if one argument is, Spark leaves NULL out",
        ("GREATEST(1, 3, 2)", 3),
        ("GREATEST(1, CAST(NULL AS INT))", None),
        any_number=True,
        of0="CASE WHEN NOT _null THEN greatest(_all) END",
    ),
    "LEAST": function(
        "NULL if one argument is, Spark leaves NULL out",
        ("LEAST(1, CAST(NULL AS INT))", None),
        ("LEAST(2, 1)", 1),
        any_number=True,
        of0="CASE WHEN NOT _null THEN least(_all) END",
    ),
    "LN": function(_LOG_DIFFERS, ("LN(0)", _INFINITE), ("LN(1)", 0.0), of1=_LOG.format("ln(_1)")),
    "LOG10": function(
        _LOG_DIFFERS, ("LOG10(0)", _INFINITE), ("LOG10(1000)", 3.0), of1=_LOG.format("log10(_1)")
    ),
    "LOG2": function(_LOG_DIFFERS, ("LOG2(0)", _INFINITE), ("LOG2(8)", 3.0), of1=_LOG.format("log2(_1)")),
    "LOG": function(
        _LOG_DIFFERS,
        ("LOG(0)", _INFINITE),
        ("LOG(2, 8)", 3.0),
        ("LOG(2, 0)", _INFINITE),
        ("CAST(LOG(2, -1) AS STRING)", "NaN"),
        of1=_LOG.format("ln(_1)"),
        of2="CASE WHEN _1 > 0 AND _1 <> 1 AND _2 > 0 THEN log(_1, _2) WHEN _1 > 1 AND _2 = 0 "
        "THEN double('-Infinity') WHEN _1 < 0 OR _2 < 0 THEN double('NaN') ELSE log(_1, _2) END",
    ),
    "FLOOR": function(
        _KEEPS_TYPE,
        ("FLOOR(CAST('1E19' AS DOUBLE))", 1e19),
        ("FLOOR(CAST('-1.5E0' AS DOUBLE))", -2.0),
        ("CAST(FLOOR(1.9) AS STRING)", "1"),
        ("FLOOR(CAST('NaN' AS DOUBLE))", float("nan")),
        of1=_FLOOR,
    ),
    **dict.fromkeys(
        ("CEIL", "CEILING"),
        function(
            _KEEPS_TYPE,
            ("CEIL(CAST('-1E19' AS DOUBLE))", -1e19),
            ("CEIL(CAST('1.2E0' AS DOUBLE))", 2.0),
            ("CAST(CEIL(1.2) AS STRING)", "2"),
            of1=_CEIL,
        ),
    ),
    "TRUNCATE": function(
        ABSENT,
        ("CAST(TRUNCATE(42.327, 2) AS STRING)", "42.32"),
        ("CAST(TRUNCATE(-42.9) AS STRING)", "-42"),
        ("TRUNCATE(CAST('1.9E19' AS DOUBLE))", 1.9e19),
        ("TRUNCATE(CAST('-1.9E0' AS DOUBLE))", -1.0),
        ("TRUNCATE(CAST('42.39E0' AS DOUBLE), 1)", 42.3),
        ("TRUNCATE(CAST('-1.96E20' AS DOUBLE), -19)", -1.9e20),
        of1=f"CASE WHEN _1 < 0 THEN {_CEIL} ELSE {_FLOOR} END",
        of2=f"CASE WHEN typeof(_1) IN ('double', 'float') THEN {_TRUNCATED} "
        "WHEN _1 < 0 THEN ceil(_1, _2) ELSE floor(_1, _2) END",
    ),
    "RAND_INTEGER": function(
        ABSENT,
        ("RAND_INTEGER(1)", 0),
        of1="CAST(floor(rand() * _1) AS INT)",
        of2="CAST(floor(rand(_1) * _2) AS INT)",
    ),
    "DATE_FORMAT": function(
        "a text that is not yyyy-MM-dd HH:mm:ss gives NULL, in Spark an error; patterns with the letters "
        f"{' '.join(sorted(NO_LETTERS))} are refused: Spark has none of them",
        (
            "DATE_FORMAT(TIMESTAMP '2026-01-31 18:09:10.123', 'yyyy-MM-dd''T''hh:mm:ss.SSS a')",
            "2026-01-31T06:09:10.123 PM",
        ),
        ("DATE_FORMAT(TIMESTAMP '2026-01-31 18:09:10', 'EEE d MMM yy, D, H')", "Sat 31 Jan 26, 31, 18"),
        ("DATE_FORMAT('2026-01-31 08:09:10', 'HH')", "08"),
        ("DATE_FORMAT('2026-1-31 8:09:10.123', 'HH SSS')", "08 000"),
        ("DATE_FORMAT('08:09', 'HH')", None),
        ("DATE_FORMAT('no time', 'HH')", None),
        ("DATE_FORMAT('2026-01-31', 'HH')", None),
        ("DATE_FORMAT(DATE '2026-01-31', 'HH')", "00"),
        of2=f"date_format(CASE WHEN typeof(_1) = 'string' THEN {_TIME_BEFORE_REST} ELSE _1 END, _2)",
    ),
    "TO_TIMESTAMP": function(
        "what is no yyyy-MM-dd[ HH:mm:ss] gives NULL; in Spark an error, and 08:09 is that time today",
        ("DATE_FORMAT(TO_TIMESTAMP('2026-01-31 08:09:10'), 'HH:mm')", "08:09"),
        ("DATE_FORMAT(TO_TIMESTAMP('31.01.2026', 'dd.MM.yyyy'), 'MM-dd')", "01-31"),
        ("TO_TIMESTAMP('no time')", None),
        ("TO_TIMESTAMP('08:09')", None),
        ("TO_TIMESTAMP('2026')", None),
        ("TO_TIMESTAMP('2026-01-31T08:09:10')", None),
        ("DATE_FORMAT(TO_TIMESTAMP('2026-1-31 8:9:10.12'), 'dd HH:mm:ss.SSS')", "31 08:09:10.120"),
        ("DATE_FORMAT(TO_TIMESTAMP('2026-01-31'), 'dd HH')", "31 00"),
        of1=_TIME,
        of2="try_to_timestamp(_1, _2)",
    ),
    "TO_DATE": function(
        "what is no date gives NULL, in Spark an error",
        ("CAST(TO_DATE('2026-01-31') AS STRING)", "2026-01-31"),
        ("TO_DATE('31.13.2026', 'dd.MM.yyyy')", None),
        of1="try_cast(_1 AS DATE)",
        of2="CAST(try_to_timestamp(_1, _2) AS DATE)",
    ),
    "TO_TIMESTAMP_LTZ": function(
        f"{ABSENT}; the precision is 0 for seconds, 3 for milliseconds; NULL outside of the years 0 to 9999. "
        "A text has a pattern",
        ("UNIX_TIMESTAMP(CAST(TO_TIMESTAMP_LTZ(1700000000, 0) AS STRING))", 1700000000),
        ("TO_TIMESTAMP_LTZ(1700000000123, 3) = TO_TIMESTAMP_LTZ(1700000000123)", True),
        ("DATE_FORMAT(TO_TIMESTAMP_LTZ('31.01.2026', 'dd.MM.yyyy'), 'MM-dd')", "01-31"),
        ("TO_TIMESTAMP_LTZ('no time', 'dd.MM.yyyy')", None),
        ("TO_TIMESTAMP_LTZ(1700000000123456789)", None),
        ("TO_TIMESTAMP_LTZ(1700000000123456789, 3)", None),
        ("TO_TIMESTAMP_LTZ(253402300800, 0)", None),
        ("TO_TIMESTAMP_LTZ(-62167219200001, 3)", None),
        (
            "DATE_FORMAT(TO_TIMESTAMP_LTZ(253402300799999, 3), 'yyyy-MM-dd HH:mm:ss.SSS')",
            "9999-12-31 23:59:59.999",
        ),
        of1=_OF_MILLIS.format("_1"),
        of2=_LOCAL,
    ),
    "FROM_UNIXTIME": function(
        "takes the quotient of whole numbers, which is DOUBLE in Spark",
        ("FROM_UNIXTIME(7999 / 1000, 'ss')", "07"),
        of1="from_unixtime(CAST(_1 AS BIGINT))",
        of2="from_unixtime(CAST(_1 AS BIGINT), _2)",
    ),
    "TIMESTAMPADD": function(
        "takes the quotient of whole numbers, which is DOUBLE in Spark",
        ("DATE_FORMAT(TIMESTAMPADD(SECOND, 7999 / 1000, TIMESTAMP '2026-01-31 08:00:00'), 'ss')", "07"),
        of3="timestampadd(_1, CAST(_2 AS INT), _3)",
    ),
    "WEEK": function(ABSENT, ("WEEK(DATE '2026-01-31')", 5), of1="weekofyear(_1)"),
    "UNIX_TIMESTAMP": function(
        "what does not begin with yyyy-MM-dd HH:mm:ss gives the smallest BIGINT, in Spark an error",
        ("UNIX_TIMESTAMP('1970-01-01 00:00:09')", 9),
        ("UNIX_TIMESTAMP('1970-01-01 0:00:09.5')", 9),
        ("UNIX_TIMESTAMP('no time')", -(2**63)),
        ("UNIX_TIMESTAMP('08:09')", -(2**63)),
        ("UNIX_TIMESTAMP('1970-01-01')", -(2**63)),
        of1=_SECONDS.format(_TIME_BEFORE_REST),
        of2=_SECONDS.format("try_to_timestamp(_1, _2)"),
    ),
    "CONVERT_TZ": function(
        ABSENT,
        ("CONVERT_TZ('1970-01-01 00:00:00', 'UTC', 'America/Los_Angeles')", "1969-12-31 16:00:00"),
        of3="date_format(convert_timezone(_2, _3, CAST(_1 AS TIMESTAMP_NTZ)), 'yyyy-MM-dd HH:mm:ss')",
    ),
    "CURRENT_ROW_TIMESTAMP": function(f"{ABSENT}; the start of the micro-batch", of0="current_timestamp()"),
    "PROCTIME": function(f"{ABSENT}; the start of the micro-batch", of0="current_timestamp()"),
}
