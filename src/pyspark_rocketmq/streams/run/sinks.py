"""Sinks: one query a job, whatever the number of sinks."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TextIO, assert_never

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.planning.ledger import BatchTurn, decide_turn
from pyspark_rocketmq.spark.checkpoint_log import CheckpointLog
from pyspark_rocketmq.streams.compile.compiler import Compiler
from pyspark_rocketmq.streams.connectors.external import foreign_rows, foreign_writer
from pyspark_rocketmq.streams.frame.flow import Flow, Guard, column
from pyspark_rocketmq.streams.frame.python_steps import BEAT
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.analysis import Shape

__all__ = ["final_flow", "printed", "run_once", "start_sinks"]

_COLUMN_KINDS: Final = frozenset({"csv", "parquet"})

BatchWriter = Callable[[DataFrame, int], None]


def final_flow(flow: Flow, sink: p.Sink, guard: Guard) -> Flow:
    """Return the rows that a sink writes: no heartbeats, nothing malformed.

    Raises
    ------
    PlanError
        The sink needs columns, and the records' fields are not known.
    """
    if flow.shape is Shape.JSON and not flow.checked:
        flow = flow.with_fields([], guard, sink)
    needs = isinstance(sink, p.TableSink | p.DatabaseSink) or (
        isinstance(sink, p.FileSink) and sink.kind in _COLUMN_KINDS
    )
    if needs:
        if flow.shape is not Shape.COLUMNS:
            raise PlanError(
                "the fields of the records are not known here: selectFields(...), schema= or a projection "
                "comes first",
                step=sink.name,
            )
        flow = flow.plain()
    if flow.beats:
        flow = replace(flow, df=flow.df.where(~F.col(BEAT)), beats=False)
    return flow


def rows_of(flow: Flow, sink: p.Sink, plan: p.Plan) -> DataFrame:
    """Return the DataFrame that a sink's writer is given."""
    match sink:
        case p.PrintSink():
            return flow.df.select(flow.text().alias("value"))
        case p.FileSink(kind="text" | "json"):
            return flow.df.select(flow.text().alias("value"))
        case p.RocketMQSink(options=options):
            return _messages(flow, plan, once=options.get("deliveryGuarantee") == "effectively-once")
        case p.ForeignSink():
            return foreign_rows(flow)
        case p.FileSink() | p.TableSink() | p.DatabaseSink() | p.CustomSink():
            if flow.shape is not Shape.COLUMNS:
                return flow.df.select(flow.text().alias("value"))
            return flow.df.select(*map(column, flow.columns))
    raise PlanError("there is no such sink", step=sink.name)


def _messages(flow: Flow, plan: p.Plan, *, once: bool) -> DataFrame:
    """Return rows for RocketMQ: JSON bodies; results of groups have the group as their key."""
    columns = [flow.text().alias("body")]
    if flow.identity and set(flow.identity) <= set(flow.df.columns):
        parts = [F.coalesce(column(name).cast("string"), F.lit("<null>")) for name in flow.identity]
        key = F.concat_ws("|", *parts)
        columns.append(F.translate(key, " \t\n", "___").alias("keys"))
        if once and not (flow.updates or flow.refires):
            columns.append(F.sha2(F.concat_ws("|", F.lit(plan.job), *parts), 256).alias("writeId"))
    return flow.df.select(*columns)


# --- streams ----------------------------------------------------------------------------------


def start_sinks(compiler: Compiler, guard: Guard, checkpoint: str, trigger: dict[str, Any]) -> StreamingQuery:
    """Start the one query of a job."""
    plan = compiler.plan
    common = compiler.flow(compiler.common())
    if len(plan.sinks) == 1:
        sink = plan.sinks[0]
        flow = final_flow(common, sink, guard)
        writer = _configured(rows_of(flow, sink, plan), flow, plan, checkpoint, trigger)
        return _started(writer, sink, plan, checkpoint)
    if common.shape is Shape.JSON and not common.checked:  # once for all, and where it is counted
        common = common.with_fields([], guard, compiler.common())
    for sink in plan.sinks:  # what does not compile shall fail now, not in the first batch
        rows_of(final_flow(compiler.flow(sink), sink, guard), sink, plan)
    writer = _configured(common.df, common, plan, checkpoint, trigger)

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        try:
            given = {compiler.common(): replace(common, df=batch)}
            branches = Compiler(batch.sparkSession, plan, given)
            for sink in plan.sinks:
                rows = rows_of(final_flow(branches.flow(sink), sink, guard), sink, plan)
                batch_writer(sink, plan, checkpoint, numbered=True)(rows, number)
        finally:
            batch.unpersist()

    return writer.foreachBatch(write).start()


def _configured(
    df: DataFrame, flow: Flow, plan: p.Plan, checkpoint: str, trigger: dict[str, Any]
) -> DataStreamWriter:
    writer = df.writeStream.queryName(plan.job).option("checkpointLocation", checkpoint)
    return writer.outputMode("update" if flow.updates else "append").trigger(**trigger)


def _started(writer: DataStreamWriter, sink: p.Sink, plan: p.Plan, checkpoint: str) -> StreamingQuery:
    match sink:
        case p.RocketMQSink(options=options):
            return writer.format("rocketmq").options(**options).start()
        case p.FileSink():
            return writer.format(sink.format).start(sink.path)
        case p.TableSink(table=table):
            return writer.toTable(table)
        case p.PrintSink() | p.DatabaseSink() | p.CustomSink() | p.ForeignSink():
            return writer.foreachBatch(batch_writer(sink, plan, checkpoint, numbered=True)).start()
    raise PlanError("there is no such sink", step=sink.name)


def batch_writer(sink: p.Sink, plan: p.Plan, checkpoint: str | None, *, numbered: bool) -> BatchWriter:
    """Return a function that writes a batch; a batch that is written again replaces what it wrote.

    Messages are the exception: they come twice then.
    """
    match sink:
        case p.PrintSink():
            return lambda df, _: printed(df, sys.stdout)
        case p.CustomSink(function=function):
            return function
        case p.FileSink(path=path, format=file_format):

            def files(df: DataFrame, number: int) -> None:
                target = f"{path}/batch={number}" if numbered else path
                df.write.mode("overwrite" if numbered else "append").format(file_format).save(target)

            return files
        case p.TableSink(table=table):
            if numbered:
                raise PlanError("a table goes alone: give it a job of its own", step=sink.name)
            return lambda df, _: df.write.mode("append").saveAsTable(table)
        case p.RocketMQSink(options=options):

            def send(df: DataFrame, number: int) -> None:
                once = {"jobId": f"{plan.job}-{number}"} if "deliveryGuarantee" in options else {}
                df.write.format("rocketmq").mode("append").options(**options, **once).save()

            return send
        case p.ForeignSink():
            return foreign_writer(sink)
        case p.DatabaseSink():
            return _database(sink, plan, checkpoint)
    raise PlanError("there is no such sink", step=sink.name)


def _database(sink: p.DatabaseSink, plan: p.Plan, checkpoint: str | None) -> BatchWriter:
    """Return a writer of rows and progress in one transaction: each batch counts once."""
    from pyspark_rocketmq.spark.sql_store import SqlOffsetStore, append_to, upsert_into  # noqa: PLC0415 - an extra
    from pyspark_rocketmq.spark.transactional import transactional_writer  # noqa: PLC0415

    write = upsert_into(sink.table, key=sink.key) if sink.key else append_to(sink.table)
    store = SqlOffsetStore(sink.url, job=f"{plan.job}/{sink.table}")
    if checkpoint is None:

        def whole(df: DataFrame, _: int) -> None:
            with store.transaction() as transaction:
                write(transaction.handle, df)
            store.close()

        return whole
    location = checkpoint
    if any(isinstance(node, p.RocketMQSource) for node in plan.nodes()):
        return transactional_writer(checkpoint=location, store=store, write=write)

    def by_number(df: DataFrame, number: int) -> None:
        identity = CheckpointLog(df.sparkSession, location).batch_id(number)
        with store.transaction() as transaction:
            before = transaction.progress()
            match decide_turn(before, identity, ()):
                case BatchTurn.REPEAT:
                    df.write.format("noop").mode("append").save()  # the state's step is taken all the same
                case BatchTurn.NEXT:
                    transaction.advance(before, identity, ())
                    write(transaction.handle, df)
                case other:
                    assert_never(other)

    return by_number


# --- what ends --------------------------------------------------------------------------------


def run_once(compiler: Compiler, guard: Guard) -> None:
    """Run a plan whose sources end: every window closes, nothing is late."""
    plan = compiler.plan
    for sink in plan.sinks:
        rows = rows_of(final_flow(compiler.flow(sink), sink, guard), sink, plan)
        batch_writer(sink, plan, None, numbered=False)(rows, 0)


def printed(df: DataFrame, out: TextIO) -> None:
    """Print rows, whole doubles without their ``.0``, as RocketMQ Streams does."""
    # Spark 4.3 keeps the job of each toLocalIterator(), rows and all, also when both sides have collected.
    out.writelines(f"{_without_zeros(text)}\n" for (text,) in df.collect())
    out.flush()


def _without_zeros(text: str) -> str:
    try:
        value = json.loads(text, parse_float=_number)
    except ValueError:
        return text
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() else value
