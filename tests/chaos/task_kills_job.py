"""A driver that does what it is told, one line of JSON at a time, and answers each with a line.

Arguments: the master, then settings of Spark as ``name=value``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import InheritableThread
from pyspark.sql import SparkSession

Options = dict[str, Any]
_PATIENCE_S = 300


class Driver:
    """What can be asked for."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, options: Options) -> dict[str, int]:
        rows = self._spark.read.format("rocketmq").options(**options).load().select("body").collect()
        return dict(Counter(bytes(row.body).decode() for row in rows))

    def write(self, options: Options, rows: int) -> None:
        numbered = self._spark.range(0, rows, 1, 2).selectExpr("concat('row ', id) AS body")
        numbered.write.format("rocketmq").mode("append").options(**options).save()

    def write_slowly(self, options: Options, go: str, interrupted: bool) -> None:
        """Write rows of which every tenth is too large; the last ones wait for a file."""

        def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            last = next(batches)
            for batch in batches:
                yield last
                last = batch
            end = time.monotonic() + _PATIENCE_S
            while not os.path.exists(go) and time.monotonic() < end:  # noqa: PTH110 - is pickled
                time.sleep(0.05)
            yield last

        self._spark.sparkContext.setJobGroup("slow", "a slow write", interruptOnCancel=interrupted)
        rows = self._spark.range(0, 400, 1, 1).selectExpr("repeat('x', if(id % 10 = 0, 2000, 999)) AS body")
        rows.mapInArrow(held, "body string").write.format("rocketmq").mode("append").options(**options).save()

    def cancel(self) -> None:
        self._spark.sparkContext.cancelAllJobs()


def main() -> None:
    master, *settings = sys.argv[1:]
    builder = SparkSession.builder.master(master)
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    driver, out = Driver(spark), threading.Lock()

    def answer(number: int, act: Callable[..., Any], given: dict[str, Any]) -> None:
        # Spark looks Python data sources up in the thread's active session, which another thread has not.
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
        try:
            told = {"value": act(**given)}
        except Exception as error:  # noqa: BLE001 - the thread's outermost frame
            told = {"error": str(error)}
        with out:
            print(json.dumps({"number": number, **told}), flush=True)

    print(json.dumps({"number": 0}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        InheritableThread(
            target=answer, args=(asked["number"], getattr(driver, asked["act"]), asked["given"]), daemon=True
        ).start()
    spark.stop()


if __name__ == "__main__":
    main()
