"""Make every mistake in a session of Spark Connect, and print what the user sees as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from tests.support.spark_mistakes import MISTAKES, World, make


def main(name_server: str, unused: str, folder: str) -> None:
    """Run the mistakes against a local Connect server."""
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    try:
        seen = {
            name: make(name, World(spark, name_server, Path(folder) / str(number), unused))
            for number, name in enumerate(MISTAKES)
        }
    finally:
        spark.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
