"""The same jobs with Kafka as their source: what of a query's time is the source's.

Both sources have the same events, in one queue or partition, the same size of a micro-batch and the same SQL.
Both results are discarded, so that only the source differs.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from benchmarks.nexmark.events import Event
from benchmarks.nexmark.run import TOPIC, job_text
from pyspark_rocketmq.sql import execute
from pyspark_rocketmq.sql.tables import Table

__all__ = ["from_kafka", "send_to_kafka", "time_query"]

_SINK: Final = re.compile(r"(CREATE TABLE nexmark_q\d+ .*?\)) WITH \(.*?\);", re.DOTALL)
_PATIENCE_S: Final = 1_200
_COLUMNS: Final = {
    "body": "value",
    "topic": "topic",
    "brokerName": "'kafka'",
    "queueId": "partition",
    "queueOffset": "offset",
}
"""Kafka's columns, by the names of ours."""


def send_to_kafka(spark: SparkSession, servers: str, events: Sequence[Event]) -> None:
    """Fill the topic, in the order of the events."""
    rows = spark.createDataFrame([(event.body().encode(),) for event in events], "value BINARY").coalesce(1)
    rows.write.format("kafka").options(**{"kafka.bootstrap.servers": servers}, topic=TOPIC).save()


@contextmanager
def from_kafka(servers: str) -> Iterator[None]:
    """Let the tables of jobs read Kafka."""

    def load(table: Table, spark: SparkSession, columns: Sequence[str], **_: Any) -> DataFrame:
        given = {
            "maxOffsetsPerTrigger": table.given.read["maxOffsetsPerTrigger"],
            "startingOffsets": "earliest",
        }
        rows = spark.readStream.format("kafka").options(
            **{"kafka.bootstrap.servers": servers}, subscribe=TOPIC, **given
        )
        return rows.load().select(*(F.expr(_COLUMNS[name]).alias(name) for name in columns))

    with patch.object(Table, "_load", load):
        yield


def time_query(spark: SparkSession, name_server: str, query: str) -> float:
    """Run a job to the end of its topic, discard its result, and return the seconds."""
    text = _SINK.sub(r"\1 WITH ('connector' = 'blackhole');", job_text(query))
    text = text.replace(
        "'connector' = 'rocketmq'", f"'connector' = 'rocketmq', 'nameServer' = '{name_server}'"
    )
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as checkpoint:
        settings = {"trigger": "availableNow"}
        with execute(spark, text, checkpoint_location=checkpoint, settings=settings) as job:
            if not job.await_termination(_PATIENCE_S):
                raise TimeoutError(f"{query} did not end in {_PATIENCE_S} s")
    return time.perf_counter() - begin
