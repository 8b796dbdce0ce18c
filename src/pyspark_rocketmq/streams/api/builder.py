"""Builders and sources of pipelines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.options.declare import with_defaults
from pyspark_rocketmq.spark.features import FEATURES
from pyspark_rocketmq.spark.stores.database_url import database_url
from pyspark_rocketmq.streams.api.arguments import JavaArguments, all_options
from pyspark_rocketmq.streams.api.compat import SourceNames
from pyspark_rocketmq.streams.api.data_stream import DataStream
from pyspark_rocketmq.streams.api.job import Job
from pyspark_rocketmq.streams.api.rocketmq_stream import Topology
from pyspark_rocketmq.streams.api.rstream import RStream
from pyspark_rocketmq.streams.api.schema_config import SchemaConfig, SchemaType
from pyspark_rocketmq.streams.connectors.base import RecordSource, option_texts
from pyspark_rocketmq.streams.connectors.database import AddedRowsSource
from pyspark_rocketmq.streams.connectors.dataframes import FrameSource
from pyspark_rocketmq.streams.connectors.files import FileSource, ReadFormat
from pyspark_rocketmq.streams.connectors.kafka import KafkaSource
from pyspark_rocketmq.streams.connectors.mqtt import MqttTopicSource
from pyspark_rocketmq.streams.connectors.mqtt_source import MqttAddress
from pyspark_rocketmq.streams.connectors.rocketmq import RocketMQSource
from pyspark_rocketmq.streams.connectors.values import RowsSource
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.run.job_registry import file_name, jobs_home

__all__ = ["DataStreamSource", "StreamBuilder"]

Schema = str | StructType | None


class DataStreamSource(SourceNames[DataStream]):
    """The sources of a job."""

    def __init__(self, namespace: str, pipelineName: str, spark: SparkSession | None = None) -> None:
        self._job = Job(_job_name(f"{namespace}.{pipelineName}"), spark)

    def fromRocketmq(
        self,
        topic: str,
        groupName: str,
        *more: str | bool | SchemaConfig | None,
        namesrvAddr: str | None = None,
        tags: str | None = None,
        isJson: bool = False,
        schema: Schema = None,
        **options: Any,
    ) -> DataStream:
        """Read topics.

        A new job starts at the first message. After a restart a job continues from its checkpoint. Queues are
        aligned by store time (``eventTimeAlignment="off"`` disables this), and heartbeats close the windows
        of an idle topic (``heartbeatInterval="off"`` disables this).

        Parameters
        ----------
        topic : str
            One topic, or several separated by commas.
        groupName : str
            The group for which finished offsets are committed, for RocketMQ's own tools.
        *more
            As in Java: ``namesrvAddr``; ``isJson, namesrvAddr``; ``tags, isJson, namesrvAddr``; each
            optionally followed by a `SchemaConfig`.
        isJson : bool
            The bodies are JSON objects whose fields can be used directly.
        schema : str or StructType, optional
            The types of the bodies' fields. Implies JSON.
        **options
            Any option of the source, such as ``maxOffsetsPerTrigger=10_000``.
        """
        step = self._job.step("fromRocketmq")
        found = JavaArguments.of(step, more, name_server=namesrvAddr, tags=tags, is_json=isJson)
        given = {
            "topic": topic,
            "consumerGroup": groupName,
            "nameServer": found.name_server,
            "tags": found.tags if found.tags != "*" else None,
        }
        config, isJson = found.config, found.is_json
        if config is not None:
            if schema is not None:
                raise PlanError("schema= and a SchemaConfig are both given: remove one", step=step)
            schema, isJson = config.schema(), config.kind is SchemaType.JSON
        texts = all_options(step, given, options, SourceOptions)
        stream = self._records(RocketMQSource, step, topic, texts, schema, json=isJson)
        return stream if config is None or config.decode is None else stream.map(config.decode)

    def fromKafka(
        self,
        bootstrapServers: str,
        topic: str,
        groupName: str,
        isJson: bool = False,
        *,
        schema: Schema = None,
        **options: Any,
    ) -> DataStream:
        """Read Kafka topics with Spark's Kafka source. The session needs its jar.

        Delivery promise: that of Spark's source, each record counts once. A record's time is its Kafka
        timestamp. Kafka sources have no heartbeats: the last windows of an idle topic stay open.

        Parameters
        ----------
        topic : str
            One topic, or several separated by commas.
        groupName : str
            The group prefix of Spark's consumers.
        **options
            Any option of Spark's source; ``kafka.sasl.jaas.config="..."`` in a dict, by ``**{...}``.
        """
        step = self._job.step("fromKafka")
        given = {
            "kafka.bootstrap.servers": bootstrapServers,
            "subscribe": topic,
            "groupIdPrefix": groupName,
        }
        texts = all_options(step, given, options)
        if not any(name.lower() == "startingoffsets" for name in texts):
            texts["startingOffsets"] = "earliest"
        return self._records(KafkaSource, step, topic, texts, schema, json=isJson)

    def fromMqtt(  # noqa: PLR0917 - as in Java
        self,
        url: str,
        clientId: str,
        topic: str,
        username: str | None = None,
        password: str | None = None,
        isJsonData: bool = False,
        *,
        schema: Schema = None,
        journal: str | None = None,
        caFile: str | None = None,
        heartbeatMs: int | None = None,
        maxRowsPerTrigger: int | None = None,
    ) -> DataStream:
        """Read a topic, or a filter such as ``plant/+/heat``, of an MQTT broker. Needs the extra ``mqtt``.

        Delivery promise: at least once (QoS 1 with a persistent session). A message is acknowledged after it
        is stored in a journal on the driver's disk. If Spark repeats a batch, it is read from the journal. A
        record's time is its arrival time. A message that the broker delivers twice counts twice.

        Parameters
        ----------
        url : str
            ``tcp://host:1883`` or ``ssl://host:8883``.
        clientId : str
            Identifies the job to the broker, also after a restart. No other client may use it.
        isJsonData : bool
            The payloads are JSON objects.
        journal : str, optional
            The journal's file. Default: a file in the jobs' home folder.
        caFile : str, optional
            Certificates of trusted authorities. Default: the system's.
        heartbeatMs : int, optional
            Windows close after this long without messages. Default: 1000.
        maxRowsPerTrigger : int, optional
            Maximum number of messages per batch. Default: 10,000.
        """
        name = file_name(f"{self._job.name}\0{topic}")  # a dash would be part of both
        file = journal or str(jobs_home() / "journals" / f"{name}.db")
        given: dict[str, Any] = {"url": url, "clientId": clientId}
        given |= {"username": username, "password": password}
        MqttAddress.of(option_texts(given))  # raises if the address is invalid
        given |= {"topic": topic, "journal": file, "caFile": caFile}
        given |= {"heartbeatMs": heartbeatMs, "maxRowsPerTrigger": maxRowsPerTrigger}
        step = self._job.step("fromMqtt")
        return self._records(MqttTopicSource, step, topic, given, schema, json=isJsonData)

    def fromMultipleDB(
        self,
        url: str,
        userName: str | None,
        password: str | None,
        tablePattern: str,
        *,
        idField: str = "id",
        refreshSeconds: float = 10,
        schema: Schema = None,
        settleSeconds: float = 1,
        maxRowsPerTrigger: int | None = None,
    ) -> DataStream:
        """Read the rows of database tables, then new rows as they are added. Needs the extra ``sql``.

        Tables that match the pattern later are read too. Rows are JSON objects. A row's time is the time of
        reading.

        Delivery promise: at least once for rows whose id grows. A changed row is not read again, and a row
        that becomes visible more than ``settleSeconds`` after a larger id is not read.

        Parameters
        ----------
        url : str
            A JDBC (MySQL, MariaDB, PostgreSQL, SQLite) or SQLAlchemy URL.
        tablePattern : str
            A regular expression that matches whole table names.
        idField : str
            An integer column with growing values.
        refreshSeconds : float
            Interval of polling the tables.
        settleSeconds : float
            How long new rows wait before they are read, so that transactions with smaller ids can end.
        maxRowsPerTrigger : int, optional
            Maximum number of rows per table and batch. Default: 10,000.
        """
        given = {
            "url.password": database_url(url, userName, password),
            "pattern": tablePattern,
            "idField": idField,
            "refreshSeconds": refreshSeconds,
            "settleSeconds": settleSeconds,
            "maxRowsPerTrigger": maxRowsPerTrigger,
        }
        step = self._job.step("fromMultipleDB")
        return self._records(AddedRowsSource, step, tablePattern, given, schema, json=True)

    def _records(
        self,
        connector: type[RecordSource],
        step: str,
        topic: str,
        options: Mapping[str, Any],
        schema: Schema,
        *,
        json: bool,
    ) -> DataStream:
        if options.get("maxRowsPerTrigger") is not None:
            FEATURES.require("4.2", "maxRowsPerTrigger", "remove it, or use that release")
        node = connector(name=step, topic=topic, options=option_texts(options), json=json, schema=schema)
        return DataStream(self._job, node)

    def fromFile(
        self,
        filePath: str,
        isJsonData: bool = True,
        *,
        schema: Schema = None,
        tail: bool = False,
        **options: Any,
    ) -> DataStream:
        """Read the lines of files once. With ``tail``, follow a folder to which files are added."""
        return self._files("json" if isJsonData else "text", filePath, schema, tail, options)

    def fromJson(
        self, filePath: str, *, schema: Schema = None, tail: bool = False, **options: Any
    ) -> DataStream:
        """Read JSON lines."""
        return self._files("json", filePath, schema, tail, options)

    def fromCsv(
        self, filePath: str, *, schema: Schema = None, tail: bool = False, **options: Any
    ) -> DataStream:
        """Read CSV with a header. With ``tail``, ``schema`` is required."""
        return self._files("csv", filePath, schema, tail, options)

    def _files(
        self, kind: ReadFormat, path: str, schema: Schema, tail: bool, options: Mapping[str, Any]
    ) -> DataStream:
        node = FileSource(
            name=self._job.step("fromFile"),
            path=path,
            kind=kind,
            tail=tail,
            schema=schema,
            options=option_texts(options),
        )
        return DataStream(self._job, node)

    def fromArray(self, values: Sequence[Any], isJson: bool = False, *, schema: Schema = None) -> DataStream:
        """Read values of this process: records, texts, or JSON texts (``isJson=True``)."""
        name = self._job.step("fromArray")
        rows = RowsSource(name=name, rows=tuple(values), json=isJson, schema=schema)
        return DataStream(self._job, rows)

    def fromCollection(self, *values: Any, schema: Schema = None) -> DataStream:
        """Read records of this process."""
        return self.fromArray(values, schema=schema)

    def from_(self, source: DataFrame | DataSource, *, timeField: str | None = None) -> DataStream:
        """Read a DataFrame, streaming or not, of any Spark data source.

        Parameters
        ----------
        source : DataFrame or DataSource
            A Python data source is registered with the session, and read as a stream if it supports that.
        timeField : str, optional
            The column of event times: timestamps, milliseconds, or texts of either. A row without a time is
            malformed. Default: the processing time.
        """
        if not isinstance(source, DataFrame | DataSource):
            raise PlanError(
                "from_ takes a DataFrame (spark.readStream.format(...).load()) or a DataSource", step="from_"
            )
        name = self._job.step("from_")
        return DataStream(self._job, FrameSource(name=name, frame=source, time=timeField))

    from_rocketmq = fromRocketmq
    from_kafka = fromKafka
    from_mqtt = fromMqtt
    from_multiple_db = fromMultipleDB
    from_file = fromFile
    from_json = fromJson
    from_csv = fromCsv
    from_array = fromArray
    from_collection = fromCollection


class StreamBuilder:
    """The entry point of both APIs.

    ``StreamBuilder.dataStream(namespace, pipeline)`` starts the older API: records with fields, SQL-like
    steps. ``StreamBuilder(jobId).source(topic, deserializer)`` starts the newer API: values, keys, functions.

    Parameters
    ----------
    jobId : str
        Names the query, the default group and the checkpoint's folder.
    spark : SparkSession, optional
        Default: the active session, or a new one.
    """

    def __init__(self, jobId: str, spark: SparkSession | None = None) -> None:
        self._job = Job(_job_name(jobId), spark)

    @staticmethod
    def dataStream(namespace: str, pipelineName: str, spark: SparkSession | None = None) -> DataStreamSource:
        """Return the sources of a job with the older API."""
        return DataStreamSource(namespace, pipelineName, spark)

    def source(
        self,
        topicName: str,
        deserializer: Callable[[bytes], tuple[Any, Any]] | None = None,
        *,
        schema: Schema = None,
        namesrv: str | None = None,
        group: str | None = None,
        **options: Any,
    ) -> RStream:
        """Read a topic.

        Parameters
        ----------
        deserializer : Callable, optional
            Returns ``(key, value)`` for a body's bytes. Default: JSON values.
        namesrv : str, optional
            Default: the one given to `RocketMQStream`, or ``$NAMESRV_ADDR``.
        """
        step = self._job.step("source")
        given = {"topic": topicName, "consumerGroup": group, "nameServer": namesrv}
        group_of_job = {"consumerGroup": re.sub(r"[^A-Za-z0-9_-]", "_", self._job.name)}
        texts = all_options(step, given, options, SourceOptions)
        node: p.Node = RocketMQSource(
            name=step,
            topic=topicName,
            options=with_defaults(SourceOptions, texts, group_of_job),
            json=deserializer is None,
            schema=schema,
        )
        if deserializer is not None:
            decode = _Decode(deserializer)
            node = p.Apply(name=self._job.step("deserialize"), input=node, how="map", function=decode)
        return RStream(self._job, node)

    def build(self) -> Topology:
        """Return the topology to pass to `RocketMQStream`."""
        return Topology(self._job)

    data_stream = dataStream


class _Decode:
    """Convert a deserializer to a function of text."""

    def __init__(self, deserializer: Callable[[bytes], tuple[Any, Any]]) -> None:
        self._deserializer = deserializer

    def __call__(self, text: str) -> Any:
        return self._deserializer(text.encode())[1]


def _job_name(name: str) -> str:
    if not name.strip("."):
        raise PlanError("a job needs a name")
    return name
