"""Text, JSON, CSV and Parquet files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_rocketmq.errors import PlanError, RocketMQError
from pyspark_rocketmq.spark.bodies.csv_rows import reading_settings, writing_settings
from pyspark_rocketmq.spark.filesystem import local_folder
from pyspark_rocketmq.spark.stores.file_log import (
    batch_numbers,
    check_new_batches,
    check_readable,
    last_batch,
    logged_batches,
)
from pyspark_rocketmq.streams.connectors.base import (
    BatchWriter,
    SinkConnector,
    SourceConnector,
    plain_rows,
    sinks_alike,
    text_value,
    texts,
)
from pyspark_rocketmq.streams.frame.flow import Flow
from pyspark_rocketmq.streams.frame.python_steps import TIME
from pyspark_rocketmq.streams.plan.analysis import Analysis
from pyspark_rocketmq.streams.plan.nodes import Plan, Shape, ends

__all__ = ["FileSink", "FileSource", "ReadFormat", "WriteFormat"]

ReadFormat: TypeAlias = Literal["text", "json", "csv"]
WriteFormat: TypeAlias = Literal["text", "json", "csv", "parquet"]

_TEXTS: Final = frozenset({"text", "json"})
_BATCH: Final = "batch="


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileSource(SourceConnector):
    """Files, read once (bounded) or followed (``tail``: a folder to which files are added)."""

    path: str
    kind: ReadFormat
    tail: bool
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """The shape of its records."""
        if self.kind == "csv" or self.schema is not None:
            return Shape.COLUMNS
        return Shape.JSON if self.kind == "json" else Shape.TEXT

    @property
    def bounded(self) -> bool:
        """Whether it is bounded."""
        return not self.tail

    @property
    def test_name(self) -> str:
        """The key of its rows in ``test``."""
        return self.path

    @property
    def takes_test_rows(self) -> bool:
        """Whether ``test`` can replace its lines with texts."""
        return self.kind != "csv" or self.schema is not None

    @property
    def details(self) -> str:
        """Its description in ``explain``."""
        return f"{self.kind} {self.path}{' (followed)' if self.tail else ''}"

    def read(self, spark: SparkSession, analysis: Analysis, plan: Plan) -> Flow:
        """Return the source's flow. A record's time is the time of reading."""
        del analysis, plan
        if self.kind == "csv":
            df = self._csv(spark)
            return Flow(df.select(F.current_timestamp().alias(TIME), "*"), Shape.COLUMNS, tuple(df.columns))
        if self.tail:
            df = spark.readStream.options(**self.options).text(self.path)
        else:
            df = spark.read.options(**self.options).text(self._existing_path())
        lines = df.where(F.trim("value") != "")
        return Flow(
            lines.select(F.current_timestamp().alias(TIME), text_value("value")),
            self.shape,
        )

    def _csv(self, spark: SparkSession) -> DataFrame:
        options = reading_settings({"header": "true", **self.options})
        if not self.tail:
            reader = spark.read.schema(self.schema) if self.schema else spark.read
            return reader.options(**options).csv(self._existing_path())
        if self.schema is None:
            raise PlanError("a CSV folder that is followed needs schema=", step=self.name)
        return spark.readStream.schema(self.schema).options(**options).csv(self.path)

    def _existing_path(self) -> str:
        if "://" not in self.path and not os.path.exists(self.path):  # noqa: PTH110 - may be a pattern of Spark
            raise PlanError(f"file not found: {self.path}", step=self.name)
        return self.path


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileSink(SinkConnector):
    """A folder of files. Spark readers see each row once."""

    path: str
    kind: WriteFormat

    @property
    def format(self) -> str:
        """Spark's name of the file format. JSON lines are written as text, because they are already JSON."""
        return "text" if self.kind == "json" else self.kind

    @property
    def needs_columns(self) -> bool:
        """Whether the records' fields must be known."""
        return self.kind not in _TEXTS

    @property
    def details(self) -> str:
        """Its description in ``explain``."""
        return f"{self.kind} {self.path}"

    def rows(self, flow: Flow, plan: Plan) -> DataFrame:
        """Return lines, or columns.

        Raises
        ------
        PlanError
            Another sink of the query writes to the same folder, and each would overwrite the other's batches.
        """
        if not ends(self) and len(sinks_alike(self, plan, lambda sink: _place(sink.path))) > 1:
            raise PlanError(
                f"two sinks write to the folder {self.path}, where each would overwrite the other's batches: "
                "unite their streams, or give each its own folder",
                step=self.name,
            )
        return texts(flow) if self.kind in _TEXTS else plain_rows(flow)

    def check_target(self, checkpoint: str, *, numbered: bool) -> None:
        """Raise an error if Spark would not write this run's batches, or readers would not find them.

        Raises
        ------
        RocketMQError
            The folder has batches that the checkpoint does not have, or in the other form: of one sink, or of
            several.
        """
        folder = local_folder(self.path)
        if folder is None:
            return
        logged, folders = logged_batches(folder), batch_numbers(folder, _BATCH)
        if logged if numbered else folders and not logged:
            raise RocketMQError(
                "a job with one sink and final results writes files and a log; one with several sinks, or "
                "with results that change, a folder for each batch. This folder has the results of a job of "
                "the other kind, and readers would see only those in the log: give the job another folder "
                "for its results",
                step=self.name,
                folder=self.path,
            )
        if not numbered:
            check_new_batches(self.name, self.path, checkpoint)
            return
        known, written = last_batch(checkpoint), max(folders, default=-1)
        if known is not None and written > known:
            raise RocketMQError(
                f"the folder has results up to batch {written}, which the job's checkpoint does not know: "
                "another job has written them, or this one before its checkpoint was removed. The batches of "
                "this run would replace them: give the job another folder for its results",
                step=self.name,
                folder=self.path,
            )

    def batch_writer(self, plan: Plan, checkpoint: str | None, *, numbered: bool) -> BatchWriter:
        """Return a function that writes a batch to its own folder, which a repeated batch overwrites.

        Raises
        ------
        RocketMQError
            The sources are bounded, and a stream has written the folder.
        """
        if checkpoint is None:
            check_readable(self.name, self.path)
        del plan

        def write(df: DataFrame, number: int) -> None:
            target = f"{self.path}/{_BATCH}{number}" if numbered else self.path
            writer = df.write.mode("overwrite" if numbered else "append").format(self.format)
            writer.options(**self._options).save(target)

        return write

    def start(self, writer: DataStreamWriter, plan: Plan, checkpoint: str) -> StreamingQuery:
        """Start a query with this as its only sink."""
        del plan, checkpoint
        return writer.format(self.format).options(**self._options).start(self.path)

    @property
    def _options(self) -> Mapping[str, str]:
        return writing_settings({}) if self.kind == "csv" else {}


def _place(path: str) -> str:
    """Return one spelling of a folder's path."""
    return path if "://" in path else str(Path(path).absolute())
