"""The jobs that are killed at chosen moments: joins, ranks, sessions and reduced windows, into SQLite tables.

Arguments: name server, folder, and the moment, or nothing, to read to the end: a table and a path below its
checkpoint (``top offsets/2``), or a table and the number of its transaction that is lost (``top before 2``)
or just done (``top after 2``).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pyspark.sql import SparkSession

from pyspark_rocketmq.streams import CheckpointStrategy, SessionWindow, StreamBuilder, Time, TumblingWindow

TABLES = {
    "pairs": "id TEXT, n TEXT, m TEXT",
    "top": "start_time TEXT, key TEXT, total REAL, rank INTEGER",
    "sessions": "key TEXT, total REAL, n INTEGER",
    "reduced": "key TEXT, total INTEGER",
}
BATCH_ROWS = 150
GAP_S = 2
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def die() -> None:
    """Kill this process and all that it has started."""
    os.killpg(0, signal.SIGKILL)


def die_at(checkpoints: Path, table: str, moment: str, number: str = "") -> None:
    if number:
        die_with(table, moment, int(number))
        return
    file = checkpoints / table / moment

    def watch() -> None:
        while not file.exists():
            time.sleep(0.001)  # the interval of looking, not a synchronisation
        die()

    threading.Thread(target=watch, daemon=True).start()


def die_with(table: str, moment: str, last: int) -> None:
    """Die before or after a transaction that inserts into a table."""
    done = 0

    @sa.event.listens_for(sa.Engine, "after_cursor_execute")
    def executed(connection: sa.Connection, _: object, statement: str, *more: object) -> None:
        if statement.startswith(f"INSERT INTO {table} "):
            connection.info["writes"] = True

    @sa.event.listens_for(sa.Engine, "commit")
    def commits(connection: sa.Connection) -> None:
        nonlocal done
        if connection.info.pop("writes", False):
            done += 1
            if moment == "before" and done == last:
                die()

    @sa.event.listens_for(sa.pool.Pool, "checkin")
    def returned(*_: object) -> None:
        if moment == "after" and done == last:
            die()


def streams(spark: SparkSession, name_server: str) -> dict[str, Any]:
    """Return the stream of each table."""

    def source(name: str, *topics: str) -> list[Any]:
        builder = StreamBuilder.dataStream("kills", name, spark)
        return [
            builder.fromRocketmq(topic, f"g-{name}", True, name_server, maxOffsetsPerTrigger=str(BATCH_ROWS))
            for topic in topics
        ]

    window = TumblingWindow.of(Time.seconds(10), "time")
    left, right = source("pairs", "bids", "auctions")
    pairs = left.selectFields("id", "n").join(right.selectFields("id", "m"))
    (top,), (sessions,), (reduced,) = (source(name, "bids") for name in ("top", "sessions", "reduced"))
    totals = top.window(window).groupBy("key").sum("price", "total").waterMark(0).toDataStream()
    by_gap = sessions.window(SessionWindow.of(Time.seconds(GAP_S), "time")).groupBy("key")
    by_key = reduced.window(window).groupBy("key").waterMark(0)
    added = by_key.reduce(lambda one, two: {"price": int(one["price"]) + int(two["price"])}, "r")
    return {
        "pairs": pairs.interval(Time.minutes(9), Time.minutes(9)).on("(id,==,id)").toDataStream(),
        "top": totals.topN("rank", 2).addOrderByFieldName("total", False).toDataStream(),
        "sessions": by_gap.sum("price", "total").count("n").waterMark(0).toDataStream(),
        "reduced": added.map(lambda row: {"key": row["key"], "total": int(row["r"]["price"])}),
    }


def main() -> None:
    name_server, folder, *moment = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_ROCKETMQ_STREAMS_HOME"] = f"{folder}/home"
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if moment:
        die_at(Path(folder, "checkpoints"), *moment)
    queries = []
    for table, stream in streams(spark, name_server).items():
        columns = [column.split()[0] for column in TABLES[table].split(", ")]
        end = stream.selectFields(*columns).toDB(f"sqlite:///{folder}/{table}.db", None, None, table)
        place = CheckpointStrategy.local(f"{folder}/checkpoints/{table}")
        queries.append(end.with_(place).asyncStart(availableNow=True))
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main()
