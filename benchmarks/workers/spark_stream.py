"""Our Spark stream source: the same query with Trigger.AvailableNow, without a checkpoint."""

from __future__ import annotations

import argparse
import itertools
import tempfile

from pyspark.sql import functions as sf

from benchmarks.workers.rounds import Done, serve
from benchmarks.workers.spark import session

_TIMEOUT_S = 300


def main() -> None:
    """Run a whole streaming query once per round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name_server")
    parser.add_argument("topic")
    parser.add_argument("--columns", default="body")
    parser.add_argument(
        "--option", action="append", default=[], help="name=value, more options of the source"
    )
    args = parser.parse_args()
    spark = session()
    try:
        rounds = itertools.count()

        def read() -> Done:
            table = f"sums{next(rounds)}"
            sums = (
                spark.readStream.format("rocketmq")
                .option("nameServer", args.name_server)
                .option("topic", args.topic)
                .option("startingOffsets", "earliest")
                .option("columns", args.columns)
                .options(**dict(pair.partition("=")[::2] for pair in args.option))
                .load()
                .selectExpr("length(body) AS size")
                .groupBy()
                .agg(sf.count("*"), sf.sum("size"))
            )
            with tempfile.TemporaryDirectory(prefix="bench-checkpoint-") as checkpoint:
                query = (
                    sums.writeStream.format("memory")
                    .queryName(table)
                    .outputMode("complete")
                    .option("checkpointLocation", checkpoint)
                    .trigger(availableNow=True)
                    .start()
                )
                if not query.awaitTermination(_TIMEOUT_S):
                    query.stop()
                    raise TimeoutError(f"the query did not end within {_TIMEOUT_S} s")
            row = spark.table(table).first()
            assert row is not None
            return Done(row[0], row[1], {"batches": len(query.recentProgress)})

        serve(read)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
