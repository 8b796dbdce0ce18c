"""Our Spark batch source: a whole query that sums the lengths of all bodies, in a warm local session."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from benchmarks.contender import ROOT
from benchmarks.workers.rounds import Done, serve

_ORDER = "orderId STRING, price DOUBLE, lines ARRAY<STRUCT<sku: STRING, quantity: INT>>"


def main() -> None:
    """Run the query once per round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name_server")
    parser.add_argument("topic")
    parser.add_argument("--columns", default="body", help="comma list; 'default' for what .load() gives")
    parser.add_argument(
        "--option", action="append", default=[], help="name=value, more options of the source"
    )
    parser.add_argument("--json", action="store_true", help="parse the bodies")
    args = parser.parse_args()
    spark = session()
    try:

        def read() -> Done:
            reader = (
                spark.read.format("rocketmq")
                .option("nameServer", args.name_server)
                .option("topic", args.topic)
            )
            if args.columns != "default":
                reader = reader.option("columns", args.columns)
            for option in args.option:
                name, _, value = option.partition("=")
                reader = reader.option(name, value)
            return total(reader.load(), "body", as_json=args.json)

        serve(read)
    finally:
        spark.stop()


def total(rows: DataFrame, body: str, *, as_json: bool) -> Done:
    """Return the number of rows (of orders if parsed), and the total bytes of their bodies."""
    counted = ["count(*)", f"sum(length({body}))"]
    if as_json:
        order = F.from_json(F.col(body).cast("string"), _ORDER)
        # As a generator it is evaluated once for all aggregates.
        rows = rows.select(body, F.explode(F.array(order)).alias("order"))
        counted = [
            "count(order.orderId)",
            f"sum(length({body}))",
            "sum(order.price)",
            "sum(size(order.lines))",
        ]
    row = rows.selectExpr(*counted).first()
    assert row is not None
    return Done(row[0], row[1])


def session(settings: Mapping[str, str] | None = None, *, cores: int = 2) -> SparkSession:
    """Return a local session with Spark's defaults, except for these settings."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("pyspark-rocketmq benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config(map=dict(settings or {}))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main()
