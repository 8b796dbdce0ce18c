"""Run a pipeline on given rows in a unit test: no broker, no checkpoint, the same compiled steps."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.spark.session_settings import WATERMARK_SETTINGS, temporary_settings
from pyspark_rocketmq.streams.compile.compiler import Compiler, is_bounded
from pyspark_rocketmq.streams.frame.flow import Flow
from pyspark_rocketmq.streams.frame.python_steps import TIME, VALUE, to_text
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.analysis import check_ends, keeps_own_state
from pyspark_rocketmq.streams.plan.nodes import Shape
from pyspark_rocketmq.streams.run.runner import STATE_SETTINGS
from pyspark_rocketmq.streams.run.sinks import final_flow

__all__ = ["run_dry"]

_SMALL: Final = {"spark.sql.shuffle.partitions": "1", "spark.sql.codegen.wholeStage": "false"}
"""A few rows run fastest in one partition and without compiling code that runs once."""

_START: Final = datetime(2030, 1, 1, tzinfo=UTC)
_SCHEMA: Final = "value string, time timestamp"

Rows = Sequence[Any]


def run_dry(
    spark: SparkSession, plan: p.Plan, rows: Rows | Mapping[str, Rows], *, batches: bool, sink: int
) -> list[Any]:
    """Return the rows that a sink gets for input rows, see `DataStream.test`."""
    plan = replace(plan, sinks=(plan.sinks[sink],))
    if batches:
        check_ends(plan)
    sources = [node for node in plan.nodes() if isinstance(node, p.Source)]
    by_source, ends = _match_rows(sources, rows), is_bounded(plan)
    with (
        temporary_settings(spark, _settings(plan)),
        tempfile.TemporaryDirectory(prefix="streams-test-") as folder,
    ):
        given: dict[p.Node, Flow] = {}
        for number, (source, its_rows) in enumerate(by_source.items()):
            where = Path(folder) / str(number)
            where.mkdir()
            # A table beside a stream has no batches.
            streaming = batches and (ends or not source.bounded)
            _write(where, its_rows if streaming else [its_rows])
            given[source] = _read_rows(spark, source, where, streaming=streaming)
        compiler = Compiler(spark, plan, given)
        for source in by_source:
            flow = given[source]
            if source.schema is not None:
                record = replace(flow, shape=Shape.JSON, exact=compiler.analysis.exact)
                given[source] = record.with_schema(source.schema, compiler.guard, source)
            else:
                given[source] = replace(flow, shape=compiler.analysis.shapes[source])
        flow = final_flow(compiler.flow(plan.sinks[0]), plan.sinks[0], compiler.guard)
        rows_out = flow.df.select(flow.text().alias("value"))
        if not batches:
            _ = spark.streams  # Spark 4.2 keeps state in batches too, once it has the manager of streams
            return [_parse_value(row[0]) for row in rows_out.collect()]
        return _run_stream(rows_out, flow, Path(folder) / "checkpoint")


def _settings(plan: p.Plan) -> dict[str, str]:
    # RocksDB is slower for a few rows, but the only store for steps that keep their own state.
    needs = any(keeps_own_state(node) for node in plan.nodes())
    return {**_SMALL, **WATERMARK_SETTINGS, **(STATE_SETTINGS if needs else {})}


def _run_stream(df: Any, flow: Flow, checkpoint: Path) -> list[Any]:
    found: list[Any] = []

    def take(batch: Any, _: int) -> None:
        found.extend(_parse_value(row[0]) for row in batch.collect())

    query = (
        df.writeStream.foreachBatch(take)
        .outputMode("update" if flow.updates else "append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return found


def _match_rows(sources: list[p.Source], rows: Rows | Mapping[str, Rows]) -> dict[p.Source, Rows]:
    if not isinstance(rows, Mapping):
        if len(sources) != 1:
            names = ", ".join(source.test_name for source in sources)
            raise PlanError(
                f"the pipeline has {len(sources)} sources: pass a mapping of rows by source, of {names}"
            )
        return {sources[0]: rows}
    known = {source.test_name: source for source in sources}
    strangers = set(rows) - set(known)
    if strangers:
        raise PlanError(f"there is no source {min(strangers)!r}; the sources are {', '.join(known)}")
    return {source: rows.get(name, []) for name, source in known.items()}


def _write(folder: Path, batches: Sequence[Rows]) -> None:
    """Write one file per batch, with increasing timestamps, so that Spark reads them in this order."""
    for number, rows in enumerate(batches):
        lines = []
        for row in rows:
            time, value = row if isinstance(row, tuple) else (_START, row)
            lines.append(json.dumps({"value": to_text(value), "time": _to_iso(time)}))
        file = folder / f"{number:06d}.json"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))


def _to_iso(time: Any) -> str:
    if isinstance(time, int | float):
        time = datetime.fromtimestamp(time, UTC)
    return str(time.isoformat())


def _read_rows(spark: SparkSession, source: p.Source, folder: Path, *, streaming: bool) -> Flow:
    if not source.takes_test_rows:
        raise PlanError("test() cannot replace the rows of a DataFrame: call toDF()", step=source.name)
    if streaming:
        df = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))
    else:
        df = spark.read.schema(_SCHEMA).json(str(folder))
    return Flow(df.select(F.col("time").alias(TIME), F.col("value").alias(VALUE)), Shape.TEXT)


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
