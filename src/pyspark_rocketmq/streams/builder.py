"""Where pipelines begin."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams import plan as p
from pyspark_rocketmq.streams.job import Job
from pyspark_rocketmq.streams.naming import twins
from pyspark_rocketmq.streams.rstream import RStream, Topology
from pyspark_rocketmq.streams.stream import DataStream
from pyspark_rocketmq.streams.stream_sinks import option_texts

__all__ = ["DataStreamSource", "StreamBuilder"]

Schema = str | StructType | None


@twins
class DataStreamSource:
    """The sources of a job."""

    def __init__(self, namespace: str, pipelineName: str, spark: SparkSession | None = None) -> None:
        self._job = Job(_job_name(f"{namespace}.{pipelineName}"), spark)

    def fromRocketmq(
        self,
        topic: str,
        groupName: str,
        *more: str | bool,
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
            As in Java: ``namesrvAddr``; ``isJson, namesrvAddr``; ``tags, isJson, namesrvAddr``.
        isJson : bool
            The bodies are JSON objects, whose fields can be named at once.
        schema : str or StructType, optional
            The types of the bodies' fields; implies JSON.
        **options
            Any option of the source, such as ``maxOffsetsPerTrigger=10_000``.
        """
        name = self._job.step("fromRocketmq")
        for value in more[:-1] if more and isinstance(more[-1], str) else more:
            if isinstance(value, bool):
                isJson = value
            else:
                tags = value
        if more and isinstance(more[-1], str):
            namesrvAddr = more[-1]
        given = {
            "topic": topic,
            "consumerGroup": groupName,
            "nameServer": namesrvAddr,
            "tags": tags if tags != "*" else None,
            **options,
        }
        node = p.RocketMQSource(
            name=name, topic=topic, options=option_texts(given), json=isJson, schema=schema
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
        self, kind: str, path: str, schema: Schema, tail: bool, options: Mapping[str, Any]
    ) -> DataStream:
        node = p.FileSource(
            name=self._job.step("fromFile"),
            path=path,
            kind=kind,
            tail=tail,
            schema=schema,
            options=option_texts(options),
        )
        return DataStream(self._job, node)

    def fromArray(self, values: Sequence[Any], *, schema: Schema = None) -> DataStream:
        """Read values of this process: texts, or records."""
        name = self._job.step("fromArray")
        return DataStream(self._job, p.RowsSource(name=name, rows=tuple(values), schema=schema))

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
        return DataStream(self._job, p.FrameSource(name=name, frame=source, time=timeField))


@twins
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
        node: p.Node = p.RocketMQSource(
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
