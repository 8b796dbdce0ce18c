from __future__ import annotations

import re

import pytest

from pyspark_rocketmq.errors import OptionError, SqlError
from pyspark_rocketmq.options import (
    CompatibilityWarning,
    FieldCount,
    SinkOptions,
    SourceOptions,
    TableOptions,
    parse_options,
)
from pyspark_rocketmq.options.declare import option_reference
from pyspark_rocketmq.sql.flink.table_options import FLINK_NAMES, sort_options
from pyspark_rocketmq.sql.statements import Position, TableOption


def sort(with_columns=True, **given):
    return sort_options(
        [
            TableOption(name.replace("__", "."), value, Position(at, 1))
            for at, (name, value) in enumerate(given.items(), 1)
        ],
        with_columns=with_columns,
    )


def test_a_table_is_for_reading_and_for_writing():
    names = {"topic": "t", "consumerGroup": "g", "produceGroup": "p", "nameServerAddress": "a:1", "tag": "x"}
    found = sort(connector="rocketmq", **names, format="csv", csv__sep="|")
    assert found.read == {"topic": "t", "consumerGroup": "g", "nameServerAddress": "a:1", "tags": "x"}
    assert found.write == {"topic": "t", "produceGroup": "p", "nameServerAddress": "a:1", "tags": "x"}
    assert (found.table, found.format.settings) == ({"format": "csv"}, {"sep": "|"})
    assert found.connection == {"nameServerAddress": "a:1"}


@pytest.mark.parametrize(
    ("name", "value", "ours"),
    [
        ("scanStartupMode", "earliest", {"startingOffsets": "earliest"}),
        ("scan.startup.mode", "latest-offset", {"startingOffsets": "latest"}),
        ("rocketmq.source.startup.scan.mode", "group-offsets", {"startingOffsets": "group"}),
        ("auto.offset.reset", "smallest", {"startingOffsets": "earliest"}),
        ("auto.offset.reset", "largest", {"startingOffsets": "latest"}),
        ("startMessageOffset", "42", {"startingOffsets": '{"t": 42}'}),
        ("startTimeMs", "1700000000000", {"startingTimestamp": "1700000000000"}),
        ("startTime", "2026-01-31 08:00:00", {"startingTimestamp": "2026-01-31 08:00:00"}),
        ("sql", "a > 1", {"sqlFilter": "a > 1"}),
        ("partitionDiscoveryIntervalMs", "7", {"routeRefreshMs": "7"}),
        ("timeZone", "Asia/Shanghai", {"timeZone": "Asia/Shanghai"}),
        ("scan.watermark.idle-timeout", "30 s", {"heartbeatInterval": "30 s"}),
    ],
)
def test_flinks_start_and_filter_options(name, value, ours):
    read = sort(topic="t", consumerGroup="g", nameServer="a:1", **{name.replace(".", "__"): value}).read
    assert ours.items() <= read.items()
    if name != "scan.watermark.idle-timeout":  # a table adds the columns that it needs
        parse_options(SourceOptions, {"timeZone": "UTC", **read})  # a job adds the session's


def test_every_flink_name_means_an_option_that_is_there():
    known = {
        spelling
        for cls in (TableOptions, SourceOptions, SinkOptions)
        for row in option_reference(cls)
        for spelling in (row.name, *row.aliases)
    }
    assert set(FLINK_NAMES.values()) <= known
    # A reader's alias: for a table it is the tag to write too.
    assert {name.lower() for name in known} & FLINK_NAMES.keys() == {"tag"}


def test_what_has_no_counterpart_is_accepted_with_a_warning():
    found = sort(topic="t", useNewApi="true", sleepTimeMs="5", columnErrorDebug="true", encoding="UTF-8")
    assert found.read == {"topic": "t"}
    with pytest.warns(CompatibilityWarning, match="there is one source"):
        found.parse(TableOptions, found.table, TableOption("", "", Position(9, 9)))


def test_length_checks_are_bad_records():
    assert sort(topic="t", lengthCheck="SKIP_SILENT").table == {"badRecords": "drop"}
    assert sort(topic="t", lengthCheck="NONE").table == {"badRecords": "drop", "fieldCount": "cut"}
    assert sort(topic="t", lengthCheck="pad").table == {"badRecords": "drop", "fieldCount": "pad"}


def test_tags_to_read_are_no_tag_to_write():
    assert "tags" not in sort(topic="t", tag="a || b").write
    assert "tags" not in sort(topic="t", tag="*").write


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": "t", "consumerGrop": "g"}, "unknown option 'consumerGrop': did you mean consumerGroup"),
        ({"topic": "t", "scanStartupMode": "soon"}, "'soon' is not one of earliest"),
        ({"topic": "t", "scanStartupMode": "timestamp"}, "startingTimestamp or startingOffsets says which"),
        ({"topic": "t", "lengthCheck": "CUT"}, "'CUT' has no counterpart"),
        ({"topic": "t", "encoding": "GBK"}, "bodies are UTF-8"),
        ({"topic": "t", "columns": "body"}, "metadata columns are declared"),
    ],
)
def test_errors_are_where_the_option_is(given, message):
    with pytest.raises(SqlError, match=re.escape(message)) as failure:
        sort(**given)
    assert failure.value.line == 2


def test_a_wrong_value_is_where_it_was_written():
    found = sort(topic="t", badRecords="explode")
    with pytest.raises(SqlError, match="expected one of fail, null, drop, dead-letter") as failure:
        found.parse(TableOptions, found.table, TableOption("", "", Position(9, 9)))
    assert (failure.value.line, failure.value.column) == (2, 1)


@pytest.mark.parametrize("value", ["-1", "1.5", "9" * 20, "9" * 5000, "\u0663"])
def test_an_offset_to_start_at_is_a_number_of_64_bits(value):
    with pytest.raises(SqlError, match="is not an offset"):
        sort(startMessageOffset=value)


def test_a_start_mode_that_another_option_explains_says_nothing_more():
    found = sort(topic="t", scan__startup__mode="timestamp", offsetFromTimestamp="1700000000000")
    assert found.read == {"topic": "t", "startingTimestamp": "1700000000000"}


def test_protobuf_needs_both_names_of_a_message():
    both = {"protobufDescriptorFile": "/schemas/order.desc", "protobufMessage": "shop.Order"}
    found = parse_options(TableOptions, {"format": "protobuf", **both})
    assert (found.protobuf_descriptor_file, found.protobuf_message) == ("/schemas/order.desc", "shop.Order")
    for name, value in both.items():
        with pytest.raises(OptionError, match="protobufDescriptorFile and protobufMessage"):
            parse_options(TableOptions, {"format": "protobuf", name: value})


def test_the_number_of_fields_is_the_tables_option():
    assert parse_options(TableOptions, {"fieldCount": "pad"}).field_count is FieldCount.PAD
    assert parse_options(TableOptions, {}).field_count is FieldCount.EXACT


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tag": "a", "tags": "b"}, "tag and tags both set tags"),
        ({"startingOffsets": "latest", "scanStartupMode": "earliest"}, "both set startingOffsets"),
        ({"startMessageOffset": "5", "auto.offset.reset": "largest"}, "both set startingOffsets"),
        ({"startTimeMs": "1000", "startTime": "2026-01-31 08:00:00"}, "both set startingTimestamp"),
        ({"rocketmq.source.filter.tag": "a", "rocketmq.sink.tag": "b"}, "both set tags"),
        ({"lengthCheck": "SKIP", "badRecords": "fail"}, "both set badRecords"),
        ({"keyColumns": "a", "key.fields": "b"}, "both set keyColumns"),
        ({"retryTimes": "1", "retries": "2"}, "both set retries"),
        ({"csv.sep": "a", "value.csv.sep": "b"}, "csv.sep is given twice"),
    ],
)
def test_options_that_set_the_same_to_different_values_are_an_error(given, message):
    names = {name.replace(".", "__"): value for name, value in given.items()}
    with pytest.raises(SqlError, match=f"line 2.*{message}"):
        sort(**names)
    same = dict.fromkeys(names, "1") if "tag" in given or "retries" in given else {}
    sort(**same)
