"""The options of Flink's formats, the schemas that Flink derives, and changelogs, as declared."""

from __future__ import annotations

import json
import re

import pytest

from pyspark_rocketmq.errors import OptionError, SqlError
from pyspark_rocketmq.options import BodyFormat, Changelog, parse_options
from pyspark_rocketmq.options.sql import JobOptions
from pyspark_rocketmq.spark.body_formats import BodyColumn, Fit
from pyspark_rocketmq.sql.check import check_job
from pyspark_rocketmq.sql.flink.connectors import ConnectorTable
from pyspark_rocketmq.sql.flinksql import JobQueries
from pyspark_rocketmq.sql.formats.avro_schemas import derive_avro_schema
from pyspark_rocketmq.sql.formats.flink_options import changelog_of, format_settings, spark_name
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.plan.targets import MessagesTarget, UnknownTarget
from pyspark_rocketmq.sql.plan.upserts import UpsertTarget, changes_target
from pyspark_rocketmq.sql.statements import CreateTable, Insert, Position, Query, TableOption
from pyspark_rocketmq.sql.tables import Table


def settings_of(**given: str):
    return format_settings(
        [
            TableOption(name.replace("__", ".").replace("_", "-"), value, Position(at, 1))
            for at, (name, value) in enumerate(given.items(), 1)
        ]
    )


def declare(columns: str, options: str = "") -> Table:
    text = f"CREATE TABLE t ({columns}) WITH ('connector' = 'rocketmq', 'topic' = 't', 'nameServer' = 'a:1'"
    (declared,) = parse_statements(f"{text}{options})")
    assert isinstance(declared, CreateTable)
    return Table.of(declared, default_format=BodyFormat.JSON)


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({"csv__field_delimiter": ";", "csv__null_literal": "-"}, {"sep": ";", "nullValue": "-"}),
        ({"csv__disable_quote_character": "true"}, {"quote": ""}),
        ({"csv__disable_quote_character": "false", "csv__allow_comments": "true"}, {"comment": "#"}),
        ({"json__encode__ignore_null_fields": "false"}, {"ignoreNullFields": "false"}),
        ({"json__dateFormat": "dd.MM.yyyy"}, {"dateFormat": "dd.MM.yyyy"}),
        ({"json__map_null_key__mode": "FAIL", "avro__encoding": "binary"}, {}),
        ({"debezium_json__schema_include": "true"}, {}),
    ],
)
def test_options_of_flinks_formats_are_options_of_sparks_functions(given, settings):
    assert settings_of(**given).settings == settings


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("csv.field-delimiter", "sep"),
        ("csv.quote-character", "quote"),
        ("CSV.Escape-Character", "escape"),
        ("csv.null-literal", "nullValue"),
        ("csv.timestamp-format", "timestampFormat"),
        ("json.timestamp-format", "timestampFormat"),
        ("json.encode.ignore-null-fields", "ignoreNullFields"),
        ("json.allowComments", "allowComments"),
        ("avro.some.thing", "some.thing"),
    ],
)
def test_an_option_has_sparks_name(option, name):
    assert spark_name(option) == name
    assert format_settings([TableOption(option, "v", Position(1, 1))]).settings == {name: "v"}


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("format", "canal-json", Changelog.CANAL),
        ("value.format", "debezium-json", Changelog.DEBEZIUM),
        ("Value.Format", "Maxwell-JSON", Changelog.MAXWELL),
        ("rocketmq.sink.serialize.format", "canal-json", Changelog.CANAL),
        ("changelog", "canal-json", Changelog.CANAL),
        ("format", "json", None),
        ("key.format", "canal-json", None),
    ],
)
def test_which_options_make_a_changelog(name, value, found):
    assert changelog_of(TableOption(name, value, Position(1, 1))) is found


def test_what_fits_a_table():
    assert settings_of().fit is Fit.FIELDS
    assert (
        settings_of(json__ignore_parse_errors="TRUE", json__fail_on_missing_field="false").fit is Fit.LENIENT
    )
    assert settings_of(json__fail_on_missing_field="true").fit is Fit.COMPLETE
    assert settings_of(csv__ignore_parse_errors="true").fit is Fit.LENIENT
    assert settings_of(json__ignore_parse_errors="false").fit is Fit.FIELDS


def test_standards_of_times_charsets_and_filters():
    assert settings_of(json__timestamp_format__standard="ISO-8601").writing == {}
    written = settings_of(json__timestamp_format__standard="SQL").writing
    assert written["timestampFormat"] == "yyyy-MM-dd HH:mm:ss.SSSSSS"
    assert written["timestampNTZFormat"] == "yyyy-MM-dd HH:mm:ss.SSSSSS"
    assert settings_of(csv__timestamp_format__standard="sql").writing == written
    assert settings_of().charset == "UTF-8"
    for name, charset in (("utf-16be", "UTF-16BE"), ("latin1", "ISO-8859-1"), ("ascii", "US-ASCII")):
        assert settings_of(raw__charset=name).charset == charset
    found = settings_of(canal_json__database__include="shop.*", canal_json__table__include="orders")
    assert found.filters == {"database": "shop.*", "table": "orders"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"json__ignore_parse_errors": "yes"}, "json.ignore-parse-errors is true or false, not 'yes'"),
        (
            {"json__ignore_parse_errors": "true", "json__fail_on_missing_field": "true"},
            "exclude each other",
        ),
        ({"json__timestamp_format__standard": "RFC"}, "is SQL or ISO-8601"),
        ({"json__map_null_key__mode": "DROP"}, "maps of Spark's have no NULL keys"),
        ({"csv__array_element_delimiter": ";"}, "Spark's CSV has no arrays"),
        ({"avro__encoding": "json"}, "Spark's Avro is binary"),
        ({"debezium_json__table__include": "orders"}, "a topic of Debezium's has one table"),
        ({"raw__endianness": "little-endian"}, "declare BYTES"),
        ({"raw__charset": "EBCDIC"}, "is not one of UTF-8, US-ASCII, ISO-8859-1, UTF-16, UTF-16BE, UTF-16LE"),
        ({"raw__charset": "cp037"}, "'cp037' is not one of UTF-8"),
        ({"raw__charset": "\0"}, "is not one of UTF-8"),
        ({"csv__allow_comments": "#"}, "csv.allow-comments is true or false, not '#'"),
        ({"csv__disable_quote_character": "1"}, "csv.disable-quote-character is true or false, not '1'"),
        ({"json__decode__json_parser__enabled": "maybe"}, "it is true or false"),
    ],
)
def test_what_formats_cannot_be(given, message):
    with pytest.raises(SqlError, match=re.escape(message)):
        settings_of(**given)


def test_bodies_that_do_not_fit_are_dropped_if_parse_errors_are_ignored():
    table = declare("a INT", ", 'json.ignore-parse-errors' = 'true'")
    assert table.options.bad_records.value == "drop"
    table = declare("a INT", ", 'value.json.ignore-parse-errors' = 'true', 'badRecords' = 'null'")
    assert table.options.bad_records.value == "null"


def test_files_have_the_same_options():
    options = "'connector' = 'filesystem', 'path' = '/f', 'format' = 'json'"
    (declared,) = parse_statements(
        f"CREATE TABLE t (a INT) WITH ({options}, 'json.ignore-parse-errors' = 'true', "
        "'json.timestamp-format.standard' = 'SQL')"
    )
    table = ConnectorTable.of(declared)
    assert table.settings == {"mode": "DROPMALFORMED"}
    assert table.writing["timestampFormat"] == "yyyy-MM-dd HH:mm:ss.SSSSSS"


def test_the_avro_schema_is_the_one_that_flink_derives():
    columns = [
        BodyColumn("id", "BIGINT", nullable=False),
        BodyColumn("price", "DECIMAL(10, 2)"),
        BodyColumn("at", "TIMESTAMP"),
        BodyColumn("who", "STRUCT<name: STRING, tags: ARRAY<STRING>>"),
        BodyColumn("counts", "MAP<STRING, INT>"),
    ]
    schema = json.loads(derive_avro_schema(columns))
    assert (schema["type"], schema["name"]) == ("record", "org.apache.flink.avro.generated.record")
    fields = {field["name"]: field["type"] for field in schema["fields"]}
    assert fields["id"] == "long"
    assert fields["price"][1] == {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    assert fields["at"] == ["null", {"type": "long", "logicalType": "timestamp-millis"}]
    assert fields["counts"][1] == {"type": "map", "values": ["null", "int"]}
    who = fields["who"][1]
    assert who["name"] == "org.apache.flink.avro.generated.record_who"
    assert who["fields"][1]["type"] == ["null", {"type": "array", "items": ["null", "string"]}]


@pytest.mark.parametrize(
    ("column", "avro"),
    [
        ("BOOLEAN", "boolean"),
        ("TINYINT", "int"),
        ("SMALLINT", "int"),
        ("FLOAT", "float"),
        ("DOUBLE", "double"),
        ("VARCHAR(3)", "string"),
        ("CHAR(3)", "string"),
        ("BINARY", "bytes"),
        ("DATE", {"type": "int", "logicalType": "date"}),
        ("TIMESTAMP_NTZ", {"type": "long", "logicalType": "timestamp-millis"}),
        ("DECIMAL", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 0}),
        ("DECIMAL(5)", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 0}),
        (
            "MAP<VARCHAR(3), DATE>",
            {"type": "map", "values": ["null", {"type": "int", "logicalType": "date"}]},
        ),
        (
            "ARRAY<STRUCT<b: INT>>",
            {
                "type": "array",
                "items": [
                    "null",
                    {
                        "type": "record",
                        "name": "org.apache.flink.avro.generated.record_a",
                        "fields": [{"name": "b", "type": ["null", "int"], "default": None}],
                    },
                ],
            },
        ),
    ],
)
@pytest.mark.parametrize("nullable", [True, False])
def test_a_column_of_avro(column, avro, nullable):
    (field,) = json.loads(derive_avro_schema([BodyColumn("a", column, nullable=nullable)]))["fields"]
    assert field == (
        {"name": "a", "type": ["null", avro], "default": None} if nullable else {"name": "a", "type": avro}
    )


def test_records_within_records_are_named_by_their_path():
    columns = [BodyColumn("a", "STRUCT<b: STRUCT<c: INT>, m: MAP<STRING, STRUCT<d: INT>>>", nullable=False)]
    (outer,) = json.loads(derive_avro_schema(columns))["fields"]
    inner, values = (field["type"][1] for field in outer["type"]["fields"])
    name = "org.apache.flink.avro.generated.record_a"
    assert [each["name"] for each in (outer["type"], inner, values["values"][1])] == [
        *(name, f"{name}_b", f"{name}_m")
    ]


def test_avro_has_maps_of_texts_only():
    with pytest.raises(OptionError, match="keys of type STRING"):
        derive_avro_schema([BodyColumn("m", "MAP<INT, INT>")])
    with pytest.raises(OptionError, match="no counterpart in Avro"):
        derive_avro_schema([BodyColumn("m", "VARIANT")])
    table = declare("a INT", ", 'format' = 'avro'")
    assert table.format is not None
    assert '"name": "a"' in str(table.format.options.avro_schema)


def test_keys_are_named_as_in_flink():
    table = declare(
        "a INT, b INT, c INT",
        ", 'key.format' = 'raw', 'key.fields' = 'a;b', 'value.fields-include' = 'EXCEPT_KEY', "
        "'value.format' = 'json'",
    )
    assert table.options.key_columns == ("a", "b")
    assert table.format is not None
    assert [column.name for column in table.format.columns] == ["c"]
    for options, message in (
        (", 'key.format' = 'avro'", "'avro' is not supported: the keys of messages are text, raw"),
        (", 'value.fields-include' = 'NONE'", "'NONE' is not one of ALL, EXCEPT_KEY"),
    ):
        with pytest.raises(SqlError, match=message):
            declare("a INT", options)


def test_a_primary_key_supplies_the_keys_of_messages():
    assert declare("a INT, b INT, PRIMARY KEY (b, a) NOT ENFORCED").options.key_columns == ("b", "a")
    assert declare("a INT PRIMARY KEY NOT ENFORCED, b INT").options.key_columns == ("a",)
    assert declare(
        "a INT, b INT, PRIMARY KEY (b) NOT ENFORCED", ", 'keyColumns' = 'a'"
    ).options.key_columns == ("a",)
    with pytest.raises(SqlError, match="the primary key names 'x', which is no column of the body"):
        declare("a INT, PRIMARY KEY (x) NOT ENFORCED")


@pytest.mark.parametrize("name", ["canal-json", "debezium-json", "maxwell-json"])
def test_changelogs_are_formats(name):
    found = declare("a INT", f", 'format' = '{name}'")
    assert found.is_changelog
    assert found.options.changelog is changelog_of(TableOption("changelog", name, Position(1, 1)))
    assert found.format is not None
    assert found.format.kind is BodyFormat.JSON
    assert not declare("a INT").is_changelog
    with pytest.raises(SqlError, match="badRecords=null has no counterpart in a changelog"):
        declare("a INT", f", 'format' = '{name}', 'badRecords' = 'null'")


# --- queries ----------------------------------------------------------------------------------------------

TABLES = """
CREATE TABLE changes (id INT, name STRING, at TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED,
  WATERMARK FOR at AS at) WITH ('connector' = 'rocketmq', 'topic' = 'a', 'format' = 'debezium-json');
CREATE TABLE plain (id INT, name STRING) WITH ('connector' = 'rocketmq', 'topic' = 'b');
"""


def translated(query: str, *, mode: str = "streaming", dialect: str = "flink"):
    queries, options = JobQueries(), parse_options(JobOptions, {"runtimeMode": mode, "dialect": dialect})
    names = []
    for statement in parse_statements(TABLES):
        assert isinstance(statement, CreateTable)
        queries.table(statement, options)
        names.append(statement.name.key)
    words = frozenset(re.findall(r"\w+", query.lower()))
    return queries.query(Query(query, words, Position(1, 1)), names, options)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT id FROM changes", "SELECT id, changes.__change AS __change FROM changes"),
        (
            "SELECT * FROM changes WHERE id > 1",
            (
                "SELECT * EXCEPT (__change), CASE WHEN changes.__change.position.index = -1 "
                "AND NOT COALESCE((id > 1), FALSE) THEN "
                "NAMED_STRUCT('op', '-U', 'position', changes.__change.position) ELSE changes.__change END "
                "AS __change FROM changes WHERE (id > 1) OR changes.__change.position.index = -1"
            ),
        ),
        (
            "SELECT s.* FROM (SELECT id FROM changes AS c) AS s",
            (
                "SELECT s.* EXCEPT (__change), s.__change AS __change "
                "FROM (SELECT id, c.__change AS __change FROM changes AS c) AS s"
            ),
        ),
        (
            "SELECT c.id, d.x FROM changes AS c JOIN dimensions AS d ON c.id = d.id",
            "SELECT c.id, d.x, c.__change AS __change FROM changes AS c JOIN dimensions AS d ON c.id = d.id",
        ),
    ],
)
def test_queries_pass_the_change_of_each_row(query, text):
    found = translated(query)
    assert found.text == text
    assert found.rows.changelog
    assert not translated(query, mode="batch").changed


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT count(*) FROM changes", "an aggregation"),
        ("SELECT id, count(*) FROM (SELECT id FROM changes) AS c GROUP BY id", "an aggregation"),
        ("SELECT DISTINCT id FROM changes", "DISTINCT"),
        ("SELECT id FROM changes ORDER BY id", "ORDER BY"),
        ("SELECT c.id FROM changes AS c JOIN plain AS p ON c.id = p.id", "a join of streams"),
        ("SELECT id, name FROM changes UNION ALL SELECT id, name FROM plain", "UNION"),
        ("SELECT id FROM plain WHERE id IN (SELECT id FROM changes)", "a condition"),
        ("SELECT id, SUM(id) OVER (ORDER BY at) FROM changes", "OVER"),
        (
            "SELECT id FROM TABLE(TUMBLE(TABLE changes, DESCRIPTOR(at), INTERVAL '1' HOUR)) AS w",
            "a window",
        ),
        (
            "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY at) AS n FROM changes) WHERE n <= 1",
            "an aggregation",
        ),
    ],
)
def test_what_would_take_back_rows_is_refused(query, what):
    with pytest.raises(SqlError, match=f"^line 1, column .*{what} cannot read a changelog as a stream"):
        translated(query)


def test_sparks_dialect_reads_changelogs_in_batches_only():
    with pytest.raises(SqlError, match="SET 'dialect' = 'flink'"):
        translated("SELECT id FROM changes", dialect="spark")
    assert not translated("SELECT id FROM changes", dialect="spark", mode="batch").changed
    check_job(f"{TABLES} SET 'checkpointLocation' = '/c'; INSERT INTO plain SELECT id, name FROM changes")


def insert_of(text: str) -> Insert:
    (found,) = parse_statements(text)
    assert isinstance(found, Insert)
    return found


def test_targets_of_changes_update_and_delete():
    insert = insert_of("INSERT INTO t SELECT 1")
    keyed = MessagesTarget(declare("a INT, b INT, PRIMARY KEY (a) NOT ENFORCED"))
    assert changes_target(keyed, insert) == UpsertTarget(keyed.table)
    every = MessagesTarget(declare("a INT", ", 'format' = 'canal-json'"))
    assert changes_target(every, insert) == UpsertTarget(every.table)
    for target, message in (
        (MessagesTarget(declare("a INT, b INT")), "declare its PRIMARY KEY"),
        (
            MessagesTarget(declare("a STRING PRIMARY KEY NOT ENFORCED", ", 'format' = 'raw'")),
            "format=raw has no deleted rows",
        ),
        (UnknownTarget("t"), "t only appends rows"),
    ):
        with pytest.raises(SqlError, match=re.escape(message)):
            changes_target(target, insert)


def test_a_query_of_a_changelog_that_cannot_be_translated_is_refused():
    with pytest.raises(SqlError, match="A query of a changelog must be translated"):
        translated("SELECT id FROM changes that only Spark can read |> WHERE")
