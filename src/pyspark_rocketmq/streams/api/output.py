"""The end of a stream: sinks, and running, explaining and testing a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.options import SinkOptions
from pyspark_rocketmq.spark.stores.database_url import database_url
from pyspark_rocketmq.streams.api.arguments import all_options
from pyspark_rocketmq.streams.api.job import Job
from pyspark_rocketmq.streams.connectors.base import option_texts
from pyspark_rocketmq.streams.connectors.database import DatabaseSink
from pyspark_rocketmq.streams.connectors.dataframes import CustomSink, TableSink
from pyspark_rocketmq.streams.connectors.files import FileSink, WriteFormat
from pyspark_rocketmq.streams.connectors.kafka import KafkaSink
from pyspark_rocketmq.streams.connectors.mqtt import MqttTopicSink
from pyspark_rocketmq.streams.connectors.mqtt_source import MqttAddress
from pyspark_rocketmq.streams.connectors.rocketmq import RocketMQSink
from pyspark_rocketmq.streams.connectors.values import PrintSink
from pyspark_rocketmq.streams.plan import nodes as p

__all__ = ["StreamOutput"]


class StreamOutput:
    """The sinks of a stream. Several sinks of a job share one query."""

    def __init__(self, job: Job, node: p.Node) -> None:
        self._job = job
        self._node = node

    def _sink(self, sink: p.Sink) -> Self:
        self._job.sinks.append(sink)
        return self

    def toPrint(self, batchSize: int = 1) -> Self:
        """Print a JSON line per row. Each micro-batch flushes its rows, whatever ``batchSize`` is."""
        del batchSize
        return self._sink(PrintSink(name=self._job.step("toPrint"), input=self._node))

    def toFile(self, filePath: str) -> Self:
        """Write JSON lines, or texts as they are, to a folder.

        Delivery promise: each row once for Spark readers, which use ``_spark_metadata`` to know which files
        are committed.
        """
        return self._file(filePath, "text")

    def toJson(self, path: str) -> Self:
        """Write JSON lines to a folder; the promise is that of `toFile`."""
        return self._file(path, "json")

    def toCsv(self, path: str) -> Self:
        """Write CSV to a folder; the promise is that of `toFile`."""
        return self._file(path, "csv")

    def toParquet(self, path: str) -> Self:
        """Write Parquet to a folder; the promise is that of `toFile`."""
        return self._file(path, "parquet")

    def _file(self, path: str, kind: WriteFormat) -> Self:
        name = self._job.step("to" + kind.capitalize().replace("Text", "File"))
        return self._sink(FileSink(name=name, input=self._node, path=path, kind=kind))

    def toTable(self, table: str) -> Self:
        """Append to a table of Spark's catalog. Each row is written once."""
        return self._sink(TableSink(name=self._job.step("toTable"), input=self._node, table=table))

    def toDB(
        self,
        url: str,
        userName: str | None,
        password: str | None,
        tableName: str,
        *,
        key: str | Sequence[str] = (),
    ) -> Self:
        """Write to an existing database table that has columns of the rows' names.

        Delivery promise: exactly once; rows and progress are one transaction.

        Parameters
        ----------
        url : str
            A JDBC (MySQL, MariaDB, PostgreSQL, SQLite) or SQLAlchemy URL.
        key : str or sequence of str, optional
            Update existing rows with the same key. Without it all rows are inserted.
        """
        return self._sink(
            DatabaseSink(
                name=self._job.step("toDB"),
                input=self._node,
                url=database_url(url, userName, password),
                table=tableName,
                key=(key,) if isinstance(key, str) else tuple(key),
            )
        )

    def toRocketmq(
        self,
        topic: str,
        *names: str,
        namesrvAddr: str | None = None,
        guarantee: str | None = None,
        **options: Any,
    ) -> Self:
        """Send a JSON message per row. Results of groups have the group and the window as their key.

        Delivery promise: at least once; a reader can drop repeats by key. With
        ``guarantee="effectively-once"`` a Spark reader drops them with ``drop_repeats``.

        Parameters
        ----------
        *names : str
            ``(namesrvAddr)``, ``(groupName, namesrvAddr)`` or ``(tags, groupName, namesrvAddr)``.
        guarantee : {"at-least-once", "effectively-once"}, optional
        **options
            Any option of the sink, such as ``createTopic=True``.
        """
        name = self._job.step("toRocketmq")
        if len(names) > 3:
            raise PlanError("toRocketmq takes topic, tags, group and name server", step=name)
        if names and namesrvAddr is not None:
            raise PlanError(
                "the name server is given twice, by its place and its name: remove one", step=name
            )
        places = ("nameServer", "producerGroup", "tags")
        given = dict(zip(places, reversed(names), strict=False))
        own = {"topic": topic, "nameServer": namesrvAddr, "deliveryGuarantee": guarantee, **given}
        texts = all_options(name, own, options, SinkOptions)
        return self._sink(RocketMQSink(name=name, input=self._node, options=texts))

    def toKafka(self, bootstrapServers: str, topic: str, **options: Any) -> Self:
        """Send a JSON record per row to a Kafka topic with Spark's Kafka sink. The session needs its jar.

        Delivery promise: at least once; results of groups have the group and the window as their key.

        Parameters
        ----------
        **options
            Any option of Spark's Kafka sink, such as ``**{"kafka.acks": "all"}``.
        """
        name = self._job.step("toKafka")
        texts = all_options(name, {"kafka.bootstrap.servers": bootstrapServers, "topic": topic}, options)
        return self._sink(KafkaSink(name=name, input=self._node, topic=topic, options=texts))

    def toMqtt(
        self,
        url: str,
        clientId: str,
        topic: str,
        username: str | None = None,
        password: str | None = None,
        *,
        caFile: str | None = None,
    ) -> Self:
        """Publish a JSON message per row to a topic of an MQTT broker. Needs the extra ``mqtt``.

        Delivery promise: at least once (QoS 1). A batch ends when the broker has confirmed every message.

        Parameters
        ----------
        url : str
            ``tcp://host:1883`` or ``ssl://host:8883``.
        clientId : str
            The prefix of the client ids. Each task has its own id.
        """
        given = {"url": url, "clientId": clientId, "username": username, "password": password}
        MqttAddress.of(option_texts(given))  # raises if the address is invalid
        options = option_texts({**given, "caFile": caFile})
        return self._sink(
            MqttTopicSink(name=self._job.step("toMqtt"), input=self._node, topic=topic, options=options)
        )

    def to(self, sink: Callable[[DataFrame, int], None]) -> Self:
        """Call a function with each batch's rows and number. Calls may repeat after a failure."""
        if not callable(sink):
            raise PlanError("to takes a function of a DataFrame and a batch's number", step="to")
        return self._sink(CustomSink(name=self._job.step("to"), input=self._node, function=sink))

    # --- running ------------------------------------------------------------------------------

    def plan(self) -> p.Plan:
        """Return the pipeline as data."""
        return self._job.plan()

    def start(
        self, isAsyn: bool = False, *, standby: bool = False, elastic: bool | int = False, **trigger: Any
    ) -> StreamingQuery | None:
        """Run the job until it is stopped, or until its bounded sources have ended.

        Parameters
        ----------
        isAsyn : bool
            Return after the start, as `asyncStart`.
        standby : bool
            If another process runs the job, wait until it ends, then take over.
        elastic : bool or int
            Share the job with its other instances on this machine. Each contributes this number of cores
            (True: one). The first instance leads; if it ends, another takes over. Needs a checkpoint on a
            local file system. Creates its own session, which ends with the query.
        **trigger
            Arguments of Spark's ``trigger``: ``availableNow=True``, ``processingTime="5 seconds"``.

        Raises
        ------
        PlanError
            The pipeline cannot be compiled. The message names the step.
        RocketMQError
            Another process runs the job, its checkpoint is of another pipeline, or its dead letters cannot be
            sent.
        """
        from pyspark_rocketmq.streams.run.launcher import launch  # noqa: PLC0415 - what runs is not needed to write down
        from pyspark_rocketmq.streams.run.runner import await_end, finish, stop  # noqa: PLC0415

        plan = self.plan()
        query = launch(self._job.spark, plan, trigger=trigger, standby=standby, elastic=int(elastic))
        if query is not None and not isAsyn:
            try:
                await_end(query, plan)
            except KeyboardInterrupt:
                stop(query)
                raise
            finally:
                finish(query)
        return query

    def asyncStart(
        self, *, standby: bool = False, elastic: bool | int = False, **trigger: Any
    ) -> StreamingQuery | None:
        """Start the job and return its query. With bounded sources the job runs to its end; returns None."""
        return self.start(True, standby=standby, elastic=elastic, **trigger)

    def toDF(self) -> DataFrame:
        """Return the stream as a DataFrame, streaming or not."""
        from pyspark_rocketmq.streams.run.runner import final_frame  # noqa: PLC0415

        sink = PrintSink(name="toDF", input=self._node)
        return final_frame(
            self._job.spark, p.Plan(job=self._job.name, sinks=(sink,), on_error=self._job.on_error)
        )

    def explain(self, picture: str | Path | None = None) -> str:
        """Print and return the steps, and which of them need Python.

        Parameters
        ----------
        picture : str or Path, optional
            Also write an SVG diagram of the steps to this file.
        """
        from pyspark_rocketmq.streams.plan.explain import draw_plan, explain_plan  # noqa: PLC0415

        plan = self._dry_run_plan()
        text = explain_plan(plan)
        print(text)
        if picture is not None:
            Path(picture).write_text(draw_plan(plan), encoding="utf-8")
        return text

    def test(
        self, rows: Sequence[Any] | Mapping[str, Sequence[Any]], *, batches: bool = False, sink: int = 0
    ) -> list[Any]:
        """Run the pipeline over given rows in this process, and return its results.

        Parameters
        ----------
        rows : sequence, or Mapping
            Message bodies: texts, or values that become JSON. A pair ``(time, body)`` sets a message's store
            time, in seconds or as a datetime. With several sources, a mapping by topic or path.
        batches : bool
            The rows are a sequence of micro-batches, run as a stream: windows close as the watermark moves,
            and windows still open at the end give no result. Otherwise all windows close.
        sink : int
            The index of the sink whose rows are returned.

        Returns
        -------
        list
            Rows as dicts, or texts for pipelines without fields.
        """
        from pyspark_rocketmq.streams.run.dry_run import run_dry  # noqa: PLC0415
        from pyspark_rocketmq.streams.run.session import get_session  # noqa: PLC0415

        return run_dry(get_session(self._job.spark), self._dry_run_plan(), rows, batches=batches, sink=sink)

    def _dry_run_plan(self) -> p.Plan:
        """Return the plan, which may still lack a sink."""
        sinks = tuple(self._job.sinks) or (PrintSink(name="end", input=self._node),)
        return p.Plan(job=self._job.name, sinks=sinks, on_error=self._job.on_error)

    to_print = toPrint
    to_file = toFile
    to_json = toJson
    to_csv = toCsv
    to_parquet = toParquet
    to_table = toTable
    to_db = toDB
    to_rocketmq = toRocketmq
    to_kafka = toKafka
    to_mqtt = toMqtt
    async_start = asyncStart
    to_df = toDF
