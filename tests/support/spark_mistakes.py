"""The mistakes that users of Spark make most often, each as the few lines that make it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_rocketmq.model import OutgoingMessage
from pyspark_rocketmq.spark import SqlOffsetStore, append_to, message_writer, transactional_writer
from pyspark_rocketmq.testing import MockCluster

__all__ = ["MISTAKES", "World", "make", "mistaken_cluster"]


@contextlib.contextmanager
def mistaken_cluster() -> Iterator[MockCluster]:
    """Run a cluster with messages, with some that have expired, and with a damaged one."""
    with MockCluster({"orders": 1, "trimmed": 1, "damaged": 1}) as mock:
        for topic in ("orders", "trimmed", "damaged"):
            for number in range(10):
                mock.send(OutgoingMessage(topic=topic, body=b"message %d" % number))
        mock.expire(mock.queue("trimmed"), 6)
        mock.corrupt(mock.queue("damaged"), 7, lambda record: record[:4] + b"\xff" * 4 + record[8:])
        yield mock


@dataclass(frozen=True)
class World:
    """A session, and the address of a `mistaken_cluster`."""

    spark: SparkSession
    name_server: str
    folder: Path
    unused: str
    """An address that nothing listens on."""

    def read(self, **options: Any) -> None:
        """Read a batch to its end."""
        self.frame(**options).collect()

    def frame(self, *, schema: str | None = None, **options: Any) -> DataFrame:
        reader = self.spark.read.format("rocketmq").options(**self._with_defaults(options))
        return (reader.schema(schema) if schema else reader).load()

    def stream(self, **options: Any) -> None:
        """Read a stream until it has everything."""
        rows = self.spark.readStream.format("rocketmq").options(**self._with_defaults(options)).load()
        self._run(rows.writeStream.format("noop"))

    def write(self, *columns: str, mode: str = "append", **options: Any) -> None:
        """Write four rows of these columns."""
        rows = self.spark.range(0, 4, 1, 1).selectExpr(*columns)
        rows.write.format("rocketmq").mode(mode).options(**self._with_defaults(options)).save()

    def write_stream(self, *columns: str, **options: Any) -> None:
        """Write what a stream reads, in these columns."""
        rows = self._stream().selectExpr(*columns).writeStream.format("rocketmq")
        self._run(rows.options(**self._with_defaults(options)))

    def write_batches(self, writer: Callable[[str], Callable[[DataFrame, int], None]]) -> None:
        """Write what a stream reads with a function for foreachBatch, made for a checkpoint."""
        self._run(self._stream().select("body").writeStream.foreachBatch(writer(self._checkpoint)))

    def _stream(self) -> DataFrame:
        reader = self.spark.readStream.format("rocketmq")
        return reader.options(**self._with_defaults({"startingOffsets": "earliest"})).load()

    def _run(self, writer: DataStreamWriter) -> None:
        query = writer.option("checkpointLocation", self._checkpoint).trigger(availableNow=True).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    @property
    def _checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    @property
    def sink(self) -> dict[str, str]:
        """The options of a sink whose topic does not exist."""
        return self._with_defaults({"topic": "order"})

    @property
    def database(self) -> str:
        """The address of an empty database."""
        self.folder.mkdir(exist_ok=True)
        return f"sqlite:///{self.folder}/results.db"

    def _with_defaults(self, options: dict[str, Any]) -> dict[str, str]:
        """Add the name server and the topic; None leaves an option out."""
        given = {"nameServer": self.name_server, "topic": "orders", "connectTimeoutMs": 1000} | options
        return {name.replace("__", "."): str(value) for name, value in given.items() if value is not None}


Mistake = Callable[[World], None]

_KAFKA_OFFSETS: Final = '{"orders": {"0": 5}}'
_TOO_LATE: Final = '{"orders": {"broker-a": {"0": 8}}}'
_TOO_EARLY: Final = '{"orders": {"broker-a": {"0": 3}}}'

MISTAKES: Final[dict[str, Mistake]] = {
    # --- options ------------------------------------------------------------------------------
    "read: no nameServer": lambda w: w.read(nameServer=None),
    "read: no topic": lambda w: w.read(topic=None),
    "read: Kafka's kafka.bootstrap.servers": lambda w: w.read(
        nameServer=None, kafka__bootstrap__servers="localhost:9092"
    ),
    "read: Kafka's bootstrap.servers": lambda w: w.read(nameServer=None, bootstrap__servers="localhost:9092"),
    "read: Kafka's kafka.group.id": lambda w: w.read(kafka__group__id="g"),
    "read: Kafka's offsets, without the brokers": lambda w: w.read(startingOffsets=_KAFKA_OFFSETS),
    "read: a misspelt option": lambda w: w.read(startingOffset="earliest"),
    "read: a misspelt value": lambda w: w.read(startingOffsets="begining"),
    "read: topic and subscribePattern": lambda w: w.read(subscribePattern="ord.*"),
    "read: an invalid pattern": lambda w: w.read(topic=None, subscribePattern="ord(.*"),
    "read: a malformed address": lambda w: w.read(nameServer="localhost"),
    "read: no time": lambda w: w.read(startingTimestamp="yesterday"),
    "read: a column that does not exist": lambda w: w.read(columns="body,partition"),
    "read: a schema of the body's fields": lambda w: w.read(schema="orderId string, cents int"),
    "read: the group's offsets without a group": lambda w: w.read(startingOffsets="group"),
    "read: no boolean": lambda w: w.read(failOnDataLoss="maybe"),
    "read: a batch that starts at latest": lambda w: w.read(startingOffsets="latest"),
    "stream: endingOffsets": lambda w: w.stream(endingOffsets="latest"),
    # --- the cluster --------------------------------------------------------------------------
    "read: nothing listens": lambda w: w.read(nameServer=w.unused),
    "read: a topic that does not exist": lambda w: w.read(topic="order"),
    "stream: a topic that does not exist": lambda w: w.stream(topic="order"),
    "read: a queue that does not exist": lambda w: w.read(
        startingOffsets='{"orders": {"broker-a": {"7": 0}}}'
    ),
    "read: a start after the end": lambda w: w.read(startingOffsets=_TOO_LATE, endingOffsets=_TOO_EARLY),
    # --- the data -----------------------------------------------------------------------------
    "read: messages that have expired": lambda w: w.read(
        topic="trimmed", startingOffsets='{"trimmed": {"broker-a": {"0": 2}}}'
    ),
    "stream: messages that have expired": lambda w: w.stream(
        topic="trimmed", startingOffsets='{"trimmed": {"broker-a": {"0": 2}}}'
    ),
    "read: a damaged message": lambda w: w.read(topic="damaged"),
    "stream: a damaged message": lambda w: w.stream(topic="damaged", startingOffsets="earliest"),
    # --- writing ------------------------------------------------------------------------------
    "write: no column body": lambda w: w.write("cast(id as string) as message"),
    "write: a body that is a number": lambda w: w.write("id as body"),
    "write: no topic": lambda w: w.write("cast(id as string) as body", topic=None),
    "write: a topic that does not exist": lambda w: w.write("cast(id as string) as body", topic="order"),
    "write: overwrite": lambda w: w.write("cast(id as string) as body", mode="overwrite"),
    "write: an empty body": lambda w: w.write("if(id = 2, '', 'x') as body"),
    "write: a body above the limit": lambda w: w.write("repeat('x', 5000000) as body", compression="none"),
    "write: an unknown column": lambda w: w.write("cast(id as string) as body", "1 as partition"),
    "write: Kafka's value": lambda w: w.write("cast(id as string) as value"),
    "write: transactional without a job's id": lambda w: w.write(
        "cast(id as string) as body", deliveryGuarantee="transactional"
    ),
    "write stream: no column body": lambda w: w.write_stream("queueId"),
    "write stream: a topic that does not exist": lambda w: w.write_stream("body", topic="order"),
    # --- foreachBatch -------------------------------------------------------------------------
    "foreachBatch: a topic that does not exist": lambda w: w.write_batches(
        lambda checkpoint: message_writer(checkpoint, w.sink)
    ),
    "foreachBatch: a row that cannot be sent": lambda w: w.write_batches(
        lambda checkpoint: message_writer(
            checkpoint, w.sink | {"topic": "orders", "maxMessageBytes": "5", "batchBytes": "5"}
        )
    ),
    "foreachBatch: a table that does not exist": lambda w: w.write_batches(
        lambda checkpoint: transactional_writer(
            checkpoint=checkpoint, store=SqlOffsetStore(w.database, job="orders"), write=append_to("bodies")
        )
    ),
    "foreachBatch: the checkpoint of another query": lambda w: w.write_batches(
        lambda checkpoint: transactional_writer(
            checkpoint=f"{checkpoint}-2",
            store=SqlOffsetStore(w.database, job="orders"),
            write=append_to("bodies"),
        )
    ),
}


def make(name: str, world: World) -> str:
    """Make a mistake and return what its user sees, without what differs between two runs.

    A failed stream's text ends with Spark's description of its plan, and Spark Connect adds the server's
    trace (spark.sql.connect.serverStacktrace.enabled): both come last, and are left out.
    """
    try:
        MISTAKES[name](world)
    except PySparkException as error:
        text = str(error).partition("=== Streaming Query ===")[0].partition("\n\nJVM stacktrace:")[0]
    else:
        raise AssertionError(f"no error: {name}")
    for given, shown in ((str(world.folder), "FOLDER"), (world.unused, "127.0.0.1:UNUSED")):
        text = text.replace(given, shown)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text)
    text = re.sub(r"attempts=\d+", "attempts=N", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
