"""A job that reads a topic in a deployment of its own, and prints what it saw as JSON.

Arguments: the master or the Connect server, name server, topic, a folder for what it writes, and for a master
the package as a zip file for the executors, and a folder that hides the installed package from every Python
that finds it in its path.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

PATIENCE_S: Final = 60

CLUSTER: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    # Nothing begins before all executors are there.
    "spark.cores.max": "4",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
}


def troubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Say where the package is from; the first attempt of three tasks of four comes to a bad end.

    One fails, the process of one dies, and one hangs until Spark ends it, which it does when the speculative
    attempt is through. It must not end by itself on seeing that one: it might be the first to be through.
    """
    from pyspark import TaskContext  # noqa: PLC0415

    import pyspark_rocketmq  # noqa: PLC0415

    context = TaskContext.get()
    attempt, task = context.attemptNumber(), context.partitionId()
    for batch in batches:
        about = pa.array([f"{task} {attempt} {pyspark_rocketmq.__file__}"] * batch.num_rows)
        yield batch.append_column("about", about)
    if attempt == 0 and task == 0:
        raise RuntimeError("this attempt is meant to fail")
    if attempt == 0 and task == 1:
        os._exit(1)
    if attempt == 0 and task == 2:
        time.sleep(PATIENCE_S)


def plain(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Say where the package is from."""
    import pyspark_rocketmq  # noqa: PLC0415

    for batch in batches:
        yield batch.append_column("about", pa.array([f"- 0 {pyspark_rocketmq.__file__}"] * batch.num_rows))


def seen(df: DataFrame) -> dict[str, object]:
    rows = df.collect()
    about = {tuple(row.about.split(" ", 2)) for row in rows}
    return {
        "batch": sorted(row.body for row in rows),
        "attempts": sorted({f"{task}:{attempt}" for task, attempt, _ in about}),
        "files": sorted({file for _, _, file in about}),
    }


def streamed(spark: SparkSession, reader: dict[str, str], folder: Path) -> list[str]:
    stream = spark.readStream.format("rocketmq").options(**reader, startingOffsets="earliest").load()
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )
    assert query.awaitTermination(240)
    return sorted(row.body for row in spark.read.parquet(str(folder / "table")).collect())


def main() -> None:
    server, name_server, topic, folder, package, hidden = sys.argv[1:]
    builder = SparkSession.builder
    if server.startswith("sc:"):
        spark = builder.remote(server).getOrCreate()
        task = plain
    else:
        executors = {"spark.executorEnv.PYTHONPATH": hidden, "spark.submit.pyFiles": package}
        spark = builder.config(map=CLUSTER | executors).master(server).getOrCreate()
        from pyspark_rocketmq.spark.source import RocketMQDataSource  # noqa: PLC0415

        spark.dataSource.register(RocketMQDataSource)
        task = troubled
    reader = {"nameServer": name_server, "topic": topic, "bodyAs": "string", "partitionPerQueue": "true"}
    df = spark.read.format("rocketmq").options(**reader).load().select("body")
    found = seen(df.mapInArrow(task, "body string, about string"))
    found["stream"] = streamed(spark, reader, Path(folder))
    print("@seen " + json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
