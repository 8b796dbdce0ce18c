"""Where pipelines begin."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.api.data_stream import DataStream
from pyspark_rocketmq.streams.api.job import Job
from pyspark_rocketmq.streams.api.rocketmq_stream import Topology
from pyspark_rocketmq.streams.api.rstream import RStream
from pyspark_rocketmq.streams.api.schema_config import SchemaConfig, SchemaType
from pyspark_rocketmq.streams.connectors.base import RecordSource, option_texts
from pyspark_rocketmq.streams.connectors.database import AddedRowsSource, database_url
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


class DataStreamSource:
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

        A job that begins reads from the first message; one that is started again goes on where it was. Queues
        are read in step by store time, and heartbeats close the windows of a silent topic:
        ``eventTimeAlignment="off"`` and ``heartbeatInterval="off"`` turn that off.

        Parameters
        ----------
        topic : str
            More than one between commas.
        groupName : str
            Where the finished offsets are committed for RocketMQ's own tools.
        *more
            As in Java: ``namesrvAddr``; ``isJson, namesrvAddr``; ``tags, isJson, namesrvAddr``; a
            `SchemaConfig` comes last.
        isJson : bool
            The bodies are JSON objects, whose fields can be named at once.
        schema : str or StructType, optional
            The types of the bodies' fields; implies JSON.
        **options
            Any option of the source, such as ``maxOffsetsPerTrigger=10_000``.
        """
        config = next((value for value in more if isinstance(value, SchemaConfig)), None)
        plain = [value for value in more if isinstance(value, str | bool)]
        for at, value in enumerate(plain, start=1):
            if isinstance(value, str) and at == len(plain):
                namesrvAddr = value
            elif isinstance(value, bool):
                isJson = value
            else:
                tags = value
        given = {
            "topic": topic,
            "consumerGroup": groupName,
            "nameServer": namesrvAddr,
            "tags": tags if tags != "*" else None,
            **options,
        }
        if config is not None:
            schema, isJson = config.schema(), config.kind is SchemaType.JSON
        stream = self._records(RocketMQSource, "fromRocketmq", topic, given, schema, json=isJson)
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
        """Read topics of Kafka by Spark's own source, whose jar the session needs.

        Delivery promise: that of Spark's source, each record counts once. A record's time is Kafka's; there
        are no heartbeats, so that the last windows of a silent topic stay open.

        Parameters
        ----------
        topic : str
            More than one between commas.
        groupName : str
            The prefix of the groups that Spark's consumers are members of.
        **options
            Any option of Spark's source; ``kafka.sasl.jaas.config="..."`` in a dict, by ``**{...}``.
        """
        given = {
            "kafka.bootstrap.servers": bootstrapServers,
            "subscribe": topic,
            "groupIdPrefix": groupName,
            "startingOffsets": "earliest",
            **options,
        }
        return self._records(KafkaSource, "fromKafka", topic, given, schema, json=isJson)

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
        """Read a topic, or a filter such as ``plant/+/heat``, of an MQTT broker; needs the extra ``mqtt``.

        Delivery promise: at least once (QoS 1, a session that the broker keeps). A message is acknowledged
        when it is in a journal on the driver's disk; a batch that Spark runs again is read from there. A
        record's time is when it came. What the broker delivers twice counts twice.

        Parameters
        ----------
        url : str
            ``tcp://host:1883`` or ``ssl://host:8883``.
        clientId : str
            By which the broker knows the job again, also after a restart; no other client may have it.
        isJsonData : bool
            The payloads are JSON objects.
        journal : str, optional
            The journal's file; one in the home of the jobs when absent.
        caFile : str, optional
            Certificates of the authorities that are believed; the system's when absent.
        heartbeatMs : int, optional
            After so long a silence windows close; 1000 when absent.
        maxRowsPerTrigger : int, optional
            How many messages a batch has at most; 10,000 when absent.
        """
        file = journal or str(jobs_home() / "journals" / f"{file_name(self._job.name)}-{file_name(topic)}.db")
        given: dict[str, Any] = {"url": url, "clientId": clientId}
        given |= {"username": username, "password": password}
        MqttAddress.of(option_texts(given))  # what is wrong with it says so here
        given |= {"topic": topic, "journal": file, "caFile": caFile}
        given |= {"heartbeatMs": heartbeatMs, "maxRowsPerTrigger": maxRowsPerTrigger}
        return self._records(MqttTopicSource, "fromMqtt", topic, given, schema, json=isJsonData)

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
        """Read the rows of database tables, and then those that are added; needs the extra ``sql``.

        Tables that come to match the pattern are read too. Rows are JSON objects; their time is when they
        are read.

        Delivery promise: at least once for rows whose id grows. One that is changed is not read again, and
        one that becomes visible more than ``settleSeconds`` behind a larger id is not seen.

        Parameters
        ----------
        url : str
            Of JDBC (MySQL, PostgreSQL, SQLite) or SQLAlchemy.
        tablePattern : str
            A regular expression of whole names.
        idField : str
            A column of integers that grow.
        refreshSeconds : float
            How often the tables are looked at.
        settleSeconds : float
            How long new rows are left alone, in which transactions with smaller ids may end.
        maxRowsPerTrigger : int, optional
            How many rows of a table a batch has at most; 10,000 when absent.
        """
        given = {
            "url.password": database_url(url, userName, password),
            "pattern": tablePattern,
            "idField": idField,
            "refreshSeconds": refreshSeconds,
            "settleSeconds": settleSeconds,
            "maxRowsPerTrigger": maxRowsPerTrigger,
        }
        return self._records(AddedRowsSource, "fromMultipleDB", tablePattern, given, schema, json=True)

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
        node = connector(
            name=self._job.step(step), topic=topic, options=option_texts(options), json=json, schema=schema
        )
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
        """Read the lines of files, once; with ``tail`` follow a folder to which files are added."""
        return self._files("json" if isJsonData else "text", filePath, schema, tail, options)

    def fromJson(
        self, filePath: str, *, schema: Schema = None, tail: bool = False, **options: Any
    ) -> DataStream:
        """Read JSON lines."""
        return self._files("json", filePath, schema, tail, options)

    def fromCsv(
        self, filePath: str, *, schema: Schema = None, tail: bool = False, **options: Any
    ) -> DataStream:
        """Read CSV with a header; with ``tail`` the schema must be given."""
        return self._files("csv", filePath, schema, tail, options)

    fromCSVFile = fromCsv

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
        """Read values of this process: records, texts, or texts that are JSON (``isJson=True``)."""
        name = self._job.step("fromArray")
        rows = RowsSource(name=name, rows=tuple(values), json=isJson, schema=schema)
        return DataStream(self._job, rows)

    def fromCollection(self, *values: Any, schema: Schema = None) -> DataStream:
        """Read records of this process."""
        return self.fromArray(values, schema=schema)

    def from_(self, source: DataFrame | DataSource, *, timeField: str | None = None) -> DataStream:
        """Read a DataFrame, streaming or not: any data source of Spark.

        Parameters
        ----------
        source : DataFrame or DataSource
            A Python data source with its options is registered with the session and read as a stream
            if it can be.
        timeField : str, optional
            Its column of event times; the time of processing when absent.
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
    from_csv_file = fromCSVFile
    from_array = fromArray
    from_collection = fromCollection


class StreamBuilder:
    """Where a pipeline begins, by either API.

    ``StreamBuilder.dataStream(namespace, pipeline)`` is the older one: records with fields, SQL-like steps.
    ``StreamBuilder(jobId).source(topic, deserializer)`` is the newer one: values, keys, functions.

    Parameters
    ----------
    jobId : str
        The query's name, the default group and the checkpoint's folder.
    spark : SparkSession, optional
        The active session, or a new one, when absent.
    """

    def __init__(self, jobId: str, spark: SparkSession | None = None) -> None:
        self._job = Job(_job_name(jobId), spark)

    @staticmethod
    def dataStream(namespace: str, pipelineName: str, spark: SparkSession | None = None) -> DataStreamSource:
        """Return the sources of a job of the older API."""
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
            Makes ``(key, value)`` of a body's bytes; JSON values when absent.
        namesrv : str, optional
            Where `RocketMQStream` is given it, or ``$NAMESRV_ADDR``, when absent.
        """
        given = {
            "topic": topicName,
            "consumerGroup": group or re.sub(r"[^A-Za-z0-9_-]", "_", self._job.name),
            "nameServer": namesrv,
            **options,
        }
        node: p.Node = RocketMQSource(
            name=self._job.step("source"),
            topic=topicName,
            options=option_texts(given),
            json=deserializer is None,
            schema=schema,
        )
        if deserializer is not None:
            decode = _Decode(deserializer)
            node = p.Apply(name=self._job.step("deserialize"), input=node, how="map", function=decode)
        return RStream(self._job, node)

    def build(self) -> Topology:
        """Return the pipeline, for `RocketMQStream`."""
        return Topology(self._job)

    data_stream = dataStream


class _Decode:
    """A deserializer as a function of text."""

    def __init__(self, deserializer: Callable[[bytes], tuple[Any, Any]]) -> None:
        self._deserializer = deserializer

    def __call__(self, text: str) -> Any:
        return self._deserializer(text.encode())[1]


def _job_name(name: str) -> str:
    if not name.strip("."):
        raise PlanError("a job needs a name")
    return name
