"""The options of Flink's formats, such as ``json.ignore-parse-errors``, as options of Spark's functions.

# Facts (Flink 1.20 and 2.0, JsonFormatOptions, CsvFormatOptions, AvroFormatOptions, RawFormatOptions): the
names and values. ``fail-on-missing-field`` and ``ignore-parse-errors`` exclude each other.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark_rocketmq.options import Changelog
from pyspark_rocketmq.spark.bodies.times import EXACT_TIMES_OF_SQL
from pyspark_rocketmq.spark.body_formats import Fit
from pyspark_rocketmq.sql.statements import TableOption

__all__ = ["FORMAT_PREFIXES", "FormatSettings", "changelog_of", "format_settings", "spark_name"]

_FORMAT_NAMES: Final = frozenset({"format", "value.format", "rocketmq.sink.serialize.format", "changelog"})
_CHANGELOGS: Final = {changelog.value: changelog for changelog in Changelog}

FORMAT_PREFIXES: Final = (
    "json.",
    "csv.",
    "avro.",
    "protobuf.",
    "raw.",
    "canal-json.",
    "debezium-json.",
    "maxwell-json.",
)

_SAME: Final[Mapping[str, str]] = {
    "csv.field-delimiter": "sep",
    "csv.quote-character": "quote",
    "csv.escape-character": "escape",
    "csv.null-literal": "nullValue",
    "csv.timestamp-format": "timestampFormat",
    "json.timestamp-format": "timestampFormat",
    "json.encode.ignore-null-fields": "ignoreNullFields",
}
_WITHOUT_EFFECT: Final[Mapping[str, frozenset[str]]] = {
    "json.map-null-key.mode": frozenset({"fail"}),
    "json.encode.decimal-as-plain-number": frozenset({"false"}),
    "json.decode.json-parser.enabled": frozenset({"true", "false"}),
    "csv.write-bigdecimal-in-scientific-notation": frozenset({"true"}),
    "avro.encoding": frozenset({"binary"}),
    "avro.timestamp_mapping.legacy": frozenset({"true"}),
    "debezium-json.schema-include": frozenset({"true", "false"}),
}
"""Options with the values that need nothing here."""

_INSTEAD: Final[Mapping[str, str]] = {
    "json.map-null-key.mode": "maps of Spark's have no NULL keys",
    "json.map-null-key.literal": "maps of Spark's have no NULL keys",
    "json.encode.decimal-as-plain-number": "Spark writes small decimals with an exponent: "
    "declare the column as STRING and cast",
    "csv.array-element-delimiter": "Spark's CSV has no arrays: declare a STRING and use SPLIT",
    "csv.write-bigdecimal-in-scientific-notation": "declare the column as STRING and cast",
    "avro.encoding": "Spark's Avro is binary",
    "avro.codec": "a message is one record, which Avro does not compress",
    "avro.timestamp_mapping.legacy": "set avroSchema to a schema with other times",
    "debezium-json.database.include": "a topic of Debezium's has one table",
    "debezium-json.table.include": "a topic of Debezium's has one table",
    "raw.endianness": "format=raw is the text of a value: declare BYTES and convert them",
}
_FILTERS: Final = frozenset(
    f"{kind.value}.{name}.include"
    for kind in (Changelog.CANAL, Changelog.MAXWELL)
    for name in ("database", "table")
)
_FITS: Final = {"ignore-parse-errors": Fit.LENIENT, "fail-on-missing-field": Fit.COMPLETE}
_STANDARDS: Final[Mapping[str, Mapping[str, str]]] = {
    "SQL": EXACT_TIMES_OF_SQL,
    "ISO-8601": {},
}
"""The formats in which times are written. Spark reads both."""


@dataclass(frozen=True, slots=True)
class FormatSettings:
    """What a table's options say about its format.

    Parameters
    ----------
    settings : mapping of str to str
        Options of Spark's function.
    writing : mapping of str to str
        More of them, for writing.
    fit : Fit
    charset : str
        Of format=raw.
    filters : mapping of str to str
        Regular expressions by ``database`` and ``table``: which changes of a changelog are read.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    writing: Mapping[str, str] = field(default_factory=dict)
    fit: Fit = Fit.FIELDS
    charset: str = "UTF-8"
    filters: Mapping[str, str] = field(default_factory=dict)


def changelog_of(option: TableOption) -> Changelog | None:
    """Return the format of changes that an option sets, if it does."""
    return _CHANGELOGS.get(option.value.lower()) if option.name.lower() in _FORMAT_NAMES else None


def spark_name(option: str) -> str:
    """Return the name that Spark's function has for a format's option, given with its prefix."""
    return _SAME.get(option.lower(), option.partition(".")[2])


def format_settings(options: list[TableOption]) -> FormatSettings:
    """Return what the options of a format say.

    Parameters
    ----------
    options : list of TableOption
        Those whose name has a prefix of a format.

    Raises
    ------
    SqlError
        An option has no counterpart, or contradicts another.
    """
    settings: dict[str, str] = {}
    writing: dict[str, str] = {}
    filters: dict[str, str] = {}
    fits: dict[Fit, TableOption] = {}
    charset = "UTF-8"
    for option in options:
        lowered = option.name.lower()
        name = lowered.partition(".")[2]
        if name in _FITS:
            if _boolean(option):
                fits[_FITS[name]] = option
        elif name == "timestamp-format.standard":
            writing |= _standard(option)
        elif lowered in _FILTERS:
            filters[name.partition(".")[0]] = option.value
        elif lowered == "raw.charset":
            charset = _charset(option)
        elif lowered == "csv.disable-quote-character":
            settings |= {"quote": ""} if _boolean(option) else {}
        elif lowered == "csv.allow-comments":
            settings |= {"comment": "#"} if _boolean(option) else {}
        elif lowered in _WITHOUT_EFFECT or lowered in _INSTEAD:
            if option.value.lower() not in _WITHOUT_EFFECT.get(lowered, ()):
                reason = _INSTEAD.get(lowered, "it is true or false")
                option.position.fail(f"{option.name} = {option.value!r} is not supported: {reason}")
        else:
            settings[spark_name(option.name)] = option.value
    if len(fits) > 1:
        fits[Fit.LENIENT].position.fail("ignore-parse-errors and fail-on-missing-field exclude each other")
    return FormatSettings(settings, writing, next(iter(fits), Fit.FIELDS), charset, filters)


def _boolean(option: TableOption) -> bool:
    if option.value.lower() not in {"true", "false"}:
        option.position.fail(f"{option.name} is true or false, not {option.value!r}")
    return option.value.lower() == "true"


def _standard(option: TableOption) -> Mapping[str, str]:
    if option.value.upper() not in _STANDARDS:
        option.position.fail(f"{option.name} is SQL or ISO-8601, not {option.value!r}")
    return _STANDARDS[option.value.upper()]


def _charset(option: TableOption) -> str:
    """Return the charset in Spark's spelling."""
    known = {codecs.lookup(name): name for name in _CHARSETS}
    try:
        found = known[codecs.lookup(option.value)]
    except (LookupError, ValueError):
        option.position.fail(f"{option.value!r} is not one of {', '.join(_CHARSETS)}")
    return found


_CHARSETS: Final = ("UTF-8", "US-ASCII", "ISO-8859-1", "UTF-16", "UTF-16BE", "UTF-16LE")
"""Those that Spark's functions have."""
