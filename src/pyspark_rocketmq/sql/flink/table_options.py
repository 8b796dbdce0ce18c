"""Options of rocketmq-flink's tables, and the corresponding options of this package."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn, TypeVar

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model.names import suggest_names
from pyspark_rocketmq.options import (
    ClientOptions,
    Options,
    SinkOptions,
    SourceOptions,
    TableOptions,
    list_spellings,
    option_reference,
    parse_options,
)
from pyspark_rocketmq.spark.body_formats import Fit
from pyspark_rocketmq.sql.formats.flink_options import (
    FORMAT_PREFIXES,
    FormatSettings,
    changelog_of,
    format_settings,
)
from pyspark_rocketmq.sql.statements import TableOption

__all__ = ["FLINK_NAMES", "FLINK_START_MODES", "SortedOptions", "sort_options"]

O = TypeVar("O", bound=Options)  # noqa: E741 - O for options

FLINK_NAMES: Final[Mapping[str, str]] = {
    "tag": "tags",
    "sql": "sqlFilter",
    "starttimems": "startingTimestamp",
    "offsetfromtimestamp": "startingTimestamp",
    "scan.startup.timestamp-millis": "startingTimestamp",
    "starttime": "startingTimestamp",
    "endtime": "endingTimestamp",
    "partitiondiscoveryintervalms": "routeRefreshMs",
    "scan.watermark.idle-timeout": "heartbeatInterval",
    "rocketmq.client.endpoints": "nameServer",
    "rocketmq.client.accesskey": "accessKey",
    "rocketmq.client.secretkey": "secretKey",
    "rocketmq.client.namespace": "namespace",
    "rocketmq.client.tls.enable": "tls",
    "rocketmq.client.network.timeout.ms": "requestTimeoutMs",
    "rocketmq.client.partition.discovery.interval.ms": "routeRefreshMs",
    "rocketmq.client.message.field.delimiter": "fieldDelimiter",
    "rocketmq.client.message.line.delimiter": "lineDelimiter",
    "rocketmq.source.topic": "topic",
    "rocketmq.source.group": "consumerGroup",
    "rocketmq.source.filter.tag": "tags",
    "rocketmq.source.filter.sql": "sqlFilter",
    "rocketmq.source.pull.batch.size": "pullBatchSize",
    "rocketmq.source.startup.offset.timestamp": "startingTimestamp",
    "rocketmq.source.startup.offset.date": "startingTimestamp",
    "rocketmq.source.stop.offset.timestamp": "endingTimestamp",
    "rocketmq.sink.topic": "topic",
    "rocketmq.sink.group": "producerGroup",
    "rocketmq.sink.tag": "tags",
    "rocketmq.sink.key": "keys",
    "rocketmq.sink.send.retry.times": "retries",
    "rocketmq.sink.send.timeout": "sendTimeoutMs",
    "retrytimes": "retries",
}
"""Option names of rocketmq-flink's tables, old and new, in lower case, that the data source does not have."""

FLINK_START_MODES: Final[Mapping[str, str]] = {
    "earliest": "earliest",
    "earliest-offset": "earliest",
    "smallest": "earliest",
    "latest": "latest",
    "latest-offset": "latest",
    "largest": "latest",
    "group-offsets": "group",
}
"""Values of ``scanStartupMode`` and ``auto.offset.reset``, and the corresponding ``startingOffsets``."""

_START_MODE_NAMES: Final = frozenset(
    {"scanstartupmode", "scan.startup.mode", "rocketmq.source.startup.scan.mode", "auto.offset.reset"}
)
_OFFSETS: Final = frozenset({"startmessageoffset", "rocketmq.source.startup.offset.specific"})
_OFFSET: Final = re.compile(r"[0-9]{1,19}")
_LENGTH_CHECKS: Final = frozenset({"lengthcheck", "rocketmq.client.message.length.check"})
_DIRTY_DATA: Final[Mapping[str, Mapping[str, str]]] = {
    "exception": {"badRecords": "fail"},
    "null": {"badRecords": "null"},
    "skip": {"badRecords": "drop"},
    "skip_silent": {"badRecords": "drop"},
    "none": {"badRecords": "drop", "fieldCount": "cut"},
    "pad": {"badRecords": "drop", "fieldCount": "pad"},
}
"""Values of rocketmq-flink's ``lengthCheck``, and the corresponding options."""

_KEY_OPTIONS: Final = frozenset({"key.fields", "key.format", "key.fields-prefix", "value.fields-include"})
_JOBS_OWN: Final = frozenset({"columns", "includeproperties", "bodyas"})
"""Options that a table with columns sets itself."""


@dataclass(frozen=True, slots=True)
class SortedOptions:
    """A table's options by purpose, under this package's names.

    Parameters
    ----------
    table, read, write : mapping of str to str
    format : FormatSettings
        Those of the format.
    """

    table: Mapping[str, str] = field(repr=False)
    read: Mapping[str, str] = field(repr=False)
    write: Mapping[str, str] = field(repr=False)
    format: FormatSettings
    written: Mapping[str, TableOption] = field(repr=False)

    @property
    def connection(self) -> dict[str, str]:
        """The options of the connection to RocketMQ."""
        return {name: value for name, value in self.read.items() if name.lower() in _CONNECTION}

    def parse(self, cls: type[O], given: Mapping[str, str], default: TableOption) -> O:
        """Parse options. An error has the position of the wrong option.

        Raises
        ------
        SqlError
        """
        try:
            return parse_options(cls, given)
        except OptionError as error:
            name = str(error.facts.get("option", "")).lower()
            self.written.get(name, default).position.fail(error.message)


def sort_options(options: Sequence[TableOption], *, with_columns: bool) -> SortedOptions:
    """Sort a table's options by purpose. Unknown options are an error.

    Parameters
    ----------
    options : sequence of TableOption
    with_columns : bool
        The table declares its columns, so options cannot set the columns of a read.

    Raises
    ------
    SqlError
        An option is unknown, or not an option of a table.
    """
    written: dict[str, TableOption] = {}
    table: dict[str, str] = {}
    read: dict[str, str] = {}
    write: dict[str, str] = {}
    of_format: list[TableOption] = []
    topic = next((option.value for option in options if option.name.lower() == "topic"), None)
    for option in options:
        lowered = option.name.lower()
        if lowered == "connector":
            continue
        of_value = replace(option, name=option.name[6:]) if lowered.startswith("value.") else option
        if of_value.name.lower().startswith(FORMAT_PREFIXES):
            formats = {other.name.lower(): other.value for other in of_format}
            if formats.get(of_value.name.lower(), option.value) != option.value:
                option.position.fail(f"{of_value.name} is given twice, also with value.: give only one")
            of_format.append(of_value)
            continue
        if with_columns and lowered in _JOBS_OWN:
            option.position.fail(
                f"{option.name} is for tables without columns: metadata columns are declared"
            )
        for name, value in _renamed(option, topic, {other.name.lower() for other in options}).items():
            homes = [home for home, cls in _HOMES.items() if name.lower() in cls]
            if not homes:
                _unknown(option)
            _refuse_other_value(name, value, option, written, (table, read, write))
            for home in homes:
                {"table": table, "read": read, "write": write}[home][name] = value
            written[name.lower()] = option
    if "||" in write.get("tags", "") or write.get("tags") == "*":
        del write["tags"]  # a filter for reading, not a tag to write
    settings = format_settings(of_format)
    if settings.fit is Fit.LENIENT and not any(name.lower() == "badrecords" for name in table):
        table["badRecords"] = "drop"
    return SortedOptions(table, read, write, settings, written)


def _refuse_other_value(
    name: str,
    value: str,
    option: TableOption,
    written: Mapping[str, TableOption],
    known: Sequence[Mapping[str, str]],
) -> None:
    """Refuse a second option that means the same, with another value. One of them would have no effect."""
    before = written.get(name.lower())
    if before is not None and any(given.get(name, value) != value for given in known):
        option.position.fail(
            f"{before.name} and {option.name} both set {name}, to different values: give only one of them"
        )


def _renamed(option: TableOption, topic: str | None, given: Collection[str]) -> Mapping[str, str]:
    """Return an option under our names. Empty if it is redundant."""
    if changelog := changelog_of(option):
        return {"changelog": changelog.value}
    if option.name.lower() in _KEY_OPTIONS:
        return _key_option(option)
    return _translate(option, topic, given)


def _translate(option: TableOption, topic: str | None, given: Collection[str]) -> Mapping[str, str]:
    lowered = option.name.lower()
    if lowered in _START_MODE_NAMES:
        mode = option.value.lower()
        if mode in {"timestamp", "specific-offsets"}:
            if not _starts(given):
                option.position.fail(f"{mode}: startingTimestamp or startingOffsets says which")
            return {}
        if mode not in FLINK_START_MODES:
            option.position.fail(f"{option.value!r} is not one of {', '.join(FLINK_START_MODES)}")
        return {"startingOffsets": FLINK_START_MODES[mode]}
    if lowered in _LENGTH_CHECKS:
        policy = _DIRTY_DATA.get(option.value.lower())
        if policy is None:
            option.position.fail(
                f"{option.value!r} has no counterpart: badRecords is fail, null, drop or dead-letter"
            )
        return policy
    if lowered in _OFFSETS:
        if not _OFFSET.fullmatch(option.value):
            option.position.fail(f"{option.value!r} is not an offset")
        return {"startingOffsets": json.dumps({topic or "": int(option.value)})}
    if lowered in {"encoding", "rocketmq.client.message.encoding"}:
        if option.value.lower().replace("-", "") != "utf8":
            option.position.fail("bodies are UTF-8: convert others with decode(body, '…') from format=raw")
        return {}
    return {FLINK_NAMES.get(lowered, option.name): option.value}


def _key_option(option: TableOption) -> Mapping[str, str]:
    """Return an option of Flink's about keys: here, a message's keys are the texts of columns."""
    value = option.value.lower()
    match option.name.lower():
        case "key.fields":
            return {"keyColumns": ",".join(option.value.split(";"))}
        case "value.fields-include":
            if value not in {"all", "except_key"}:
                option.position.fail(f"{option.value!r} is not one of ALL, EXCEPT_KEY")
            return {"writeKeysToBody": str(value == "all").lower()}
        case "key.format" if value != "raw":
            option.position.fail(f"{option.value!r} is not supported: the keys of messages are text, raw")
    return {}


def _starts(given: Collection[str]) -> bool:
    """Return whether an option sets a time or offsets to start at."""
    ours = {"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"}
    return any(
        name in ours or FLINK_NAMES.get(name, "").lower() in ours or name in _OFFSETS for name in given
    )


def _spellings(cls: type[Options]) -> frozenset[str]:
    return list_spellings(cls) | frozenset(name.lower() for name in cls.COMPATIBILITY)


_HOMES: Final = {
    "table": _spellings(TableOptions),
    "read": _spellings(SourceOptions),
    "write": _spellings(SinkOptions),
}


_CONNECTION: Final = _spellings(ClientOptions)


def _unknown(option: TableOption) -> NoReturn:
    kafkas = {**SinkOptions.ELSEWHERE, **SourceOptions.ELSEWHERE}
    if instead := kafkas.get(option.name.lower()):
        option.position.fail(f"unknown option {option.name!r}: that is Kafka's name; here it is {instead}")
    names = [
        name
        for cls in (TableOptions, SourceOptions, SinkOptions)
        for row in option_reference(cls)
        for name in (row.name, *row.aliases)
    ]
    guess = suggest_names(option.name, [*names, *FLINK_NAMES])
    hint = f": {guess}" if guess else "; docs/options.md lists them"
    option.position.fail(f"unknown option {option.name!r}{hint}")
