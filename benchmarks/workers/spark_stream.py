"""Our Spark stream source: all of a topic under Trigger.AvailableNow, from no checkpoint."""

from __future__ import annotations

import argparse
import tempfile

from pyspark.sql import DataFrame

from benchmarks.workers.rounds import Done, serve
from benchmarks.workers.spark import session

_TIMEOUT_S = 300


def main() -> None:
    """Run a whole streaming query once a round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name_server")
    parser.add_argument("topic")
    parser.add_argument("--columns", default="body")
    args = parser.parse_args()
    spark = session()
    try:

        def read() -> Done:
            seen: list[tuple[int, int]] = []

            def add(rows: DataFrame, _: int) -> None:
                row = rows.selectExpr("count(*)", "sum(length(body))").first()
                assert row is not None
                seen.append((row[0], row[1] or 0))

            frame = (
                spark.readStream.format("rocketmq")
                .option("nameServer", args.name_server)
                .option("topic", args.topic)
                .option("startingOffsets", "earliest")
                .option("columns", args.columns)
                .load()
            )
            with tempfile.TemporaryDirectory(prefix="bench-checkpoint-") as checkpoint:
                query = (
                    frame.writeStream.foreachBatch(add)
                    .option("checkpointLocation", checkpoint)
                    .trigger(availableNow=True)
                    .start()
                )
                if not query.awaitTermination(_TIMEOUT_S):
                    query.stop()
                    raise TimeoutError(f"the query did not end within {_TIMEOUT_S} s")
            messages, size = (sum(part) for part in zip(*seen, strict=True))
            return Done(messages, size, {"batches": len(seen)})

        serve(read)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
