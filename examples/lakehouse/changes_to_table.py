"""Changes of a database's table (Canal or Debezium, as JSON) to a Delta or Iceberg table that has its rows.

    NAMESRV_ADDR=127.0.0.1:9876 python examples/lakehouse/changes_to_table.py iceberg /lake customers

Each micro-batch is one MERGE: the last change of each key updates, inserts or deletes its row. A batch that
is repeated after a crash has the same messages, so the table is the same.

The topic has the changes of one table, and all changes of a key are in one queue, in their order.
"""

from __future__ import annotations

import os
import sys

from orders_to_table import create_session, table_name
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

KEY = "id"
COLUMNS = {"id": "BIGINT", "name": "STRING", "city": "STRING"}

_ROW = "MAP<STRING, STRING>"  # Canal writes all values as texts
_DEBEZIUM = f"op STRING, before {_ROW}, after {_ROW}, ddl STRING"
ENVELOPE = (
    f"isDdl BOOLEAN, type STRING, data ARRAY<{_ROW}>, old ARRAY<{_ROW}>, "  # Canal
    f"{_DEBEZIUM}, payload STRUCT<{_DEBEZIUM}>"  # Debezium, without and with its schema
)

REFUSED = (
    "message %s of queue %s of %s empties the table, or is not a change of Canal or Debezium with the column "
    f"{KEY}. Repair the table, and start after the message with a new checkpoint"
)


def read_messages(spark: SparkSession, topic: str) -> DataFrame:
    """Return the messages of a topic, as a stream."""
    return (
        spark.readStream.format("rocketmq")
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .option("nameServer", os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"))
        .load()
    )


def changes_of(messages: DataFrame) -> DataFrame:
    """Return the changes that messages have: a row each, whether it is deleted, and its position."""
    body = F.col("body").cast("string")
    parsed = messages.withColumns({"text": body, "e": F.from_json(body, ENVELOPE)})
    changes = parsed.select("queueOffset", F.posexplode(_changes_or_error()).alias("place", "change"))
    return changes.select(
        *(F.col("change.row")[name].cast(kind).alias(name) for name, kind in COLUMNS.items()),
        F.col("change.deleted").alias("deleted"),
        F.struct("queueOffset", "place").alias("position"),
    )


def _changes_or_error() -> Column:
    """Return an envelope's changes, NULL if it is of something else, or fail: a skipped change stays lost."""
    op, ddl = (F.coalesce(f"e.{name}", f"e.payload.{name}") for name in ("op", "ddl"))
    changes = F.when(op.isin("c", "r", "u", "d"), _debezium(op)).when(
        F.col("e.type").isin("INSERT", "UPDATE", "DELETE"), _canal()
    )
    empties = F.coalesce(F.col("e.type").isin("TRUNCATE", "ERASE"), F.lit(False))  # Debezium's is op "t"
    payload = F.coalesce(F.get_json_object("text", "$.payload"), "text")
    heartbeat = (F.json_object_keys(payload) == F.array(F.lit("ts_ms"))) | (F.col("e.type") == "MHEARTBEAT")
    return (
        F.when(F.forall(changes, lambda change: change["row"][KEY].isNotNull()), changes)
        .when((F.col("e.isDdl") & ~empties) | ddl.isNotNull() | (op == "m") | heartbeat, None)
        .otherwise(F.raise_error(F.format_string(REFUSED, "queueOffset", "queueId", "brokerName")))
    )


def _debezium(op: Column) -> Column:
    after, before = (F.coalesce(f"e.{side}", f"e.payload.{side}") for side in ("after", "before"))
    return F.array(_change(F.when(op == "d", before).otherwise(after), op == "d"))


def _canal() -> Column:
    gone = F.col("e.type") == "DELETE"
    rows = F.transform("e.data", lambda row: _change(row, gone))
    # An update of the key itself: Canal has the former one in `old`, Debezium sends two changes.
    former = F.filter(F.coalesce("e.old", F.array()), lambda row: row[KEY].isNotNull())
    return F.concat(F.transform(former, lambda row: _change(row, F.lit(True))), rows)


def _change(row: Column, deleted: Column) -> Column:
    return F.struct(row.alias("row"), deleted.alias("deleted"))


def merge_into(name: str, batch: DataFrame) -> None:
    """Apply a micro-batch: the last change of each key."""
    last = F.max_by(F.struct(*COLUMNS, "deleted"), "position").alias("last")
    batch.groupBy(F.col(KEY).alias("key")).agg(last).select("last.*").createOrReplaceTempView("changes")
    others = [column for column in COLUMNS if column != KEY]
    batch.sparkSession.sql(f"""
        MERGE INTO {name} AS t USING changes AS c ON t.{KEY} = c.{KEY}
        WHEN MATCHED AND c.deleted THEN DELETE
        WHEN MATCHED THEN UPDATE SET {", ".join(f"t.{column} = c.{column}" for column in others)}
        WHEN NOT MATCHED AND NOT c.deleted THEN
            INSERT ({", ".join(COLUMNS)}) VALUES ({", ".join(f"c.{column}" for column in COLUMNS)})
    """)


def main(kind: str, lake: str, topic: str) -> None:
    """Apply what is new."""
    spark = create_session(kind, lake)
    name = table_name(kind, lake, topic)
    if kind == "iceberg":
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.shop")
    columns = ", ".join(f"{column} {type_}" for column, type_ in COLUMNS.items())
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING {kind}")
    query = (
        changes_of(read_messages(spark, topic))
        .writeStream.foreachBatch(lambda batch, _: merge_into(name, batch))
        .option("checkpointLocation", f"{lake}/_checkpoints/{topic}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for row in spark.table(name).orderBy(KEY).collect():
        print(*row)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
