"""``pyspark-rocketmq sql``: run a SQL job file."""

from __future__ import annotations

import os
import sys
from json import loads
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pyspark_rocketmq.cli.connect import pairs
from pyspark_rocketmq.cli.input import read_text
from pyspark_rocketmq.cli.printing import AsJson, console, examples, print_json, print_table
from pyspark_rocketmq.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["EXAMPLES", "show", "sql"]

EXAMPLES: Final = examples(
    "sql job.sql --checkpoint /var/lib/job",
    "sql --checkpoint /var/lib/shell",
    "sql job.sql --set trigger=availableNow --checkpoint /tmp/job",
    "sql report.sql --set runtimeMode=batch",
    "sql job.sql --check",
    "sql job.sql --explain",
)

_SHOWN_ROWS: Final = 100


def sql(
    file: Annotated[
        str | None,
        typer.Argument(
            help="File of statements, separated by semicolons; - is standard input. Without it, a shell."
        ),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Folder or URI for the checkpoints of the queries.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting as in SET, name=value; repeatable.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Spark's master. [spark-submit's, else local[*]]")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", help="A Spark setting, name=value; repeatable.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check the job only: statements, options, and Spark's plan. No broker."),
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="As --check, and print each query's translation and Spark's plan."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Run a SQL job: CREATE TABLE, CREATE VIEW, and INSERT INTO as streaming queries.

    Runs until every query has ended. Queries without `trigger=availableNow` run until they fail or the
    command is interrupted. After a restart with the same checkpoint the job continues where it stopped. An
    error in the file is reported with line and column, and exit code 2. Spark's log is in a file, which an
    error names.

    Without a file it is a shell: statements run as they are entered, SELECT from a stream shows its rows
    until Ctrl-C, and INSERT INTO starts a query in the background. It needs
    `pip install 'pyspark-rocketmq[shell]'`.
    """
    if file is None:
        if check or explain or json:
            raise OptionError("--check, --explain and --json need a file")
        _shell(checkpoint, pairs(settings), master, pairs(conf))
        return
    text = read_text(file, "the job")
    # The parser takes a second to import, Spark some more: only this command waits for them.
    from pyspark_rocketmq.sql.check import check_job
    from pyspark_rocketmq.sql.parse import parse_statements

    if check or explain:
        count = check_job(text, checkpoint_location=checkpoint, settings=pairs(settings))
        planned = _plan(text, checkpoint, pairs(settings), master, pairs(conf), announce=not json)
        if explain:
            _print_plans(planned, json=json)
        elif json:
            print_json({"statements": count})
        else:
            console().print(f"{count} statements")
        return
    parse_statements(text)  # an invalid job needs no Spark
    _run(text, checkpoint, pairs(settings), master, pairs(conf), json=json)


def _plan(
    text: str,
    checkpoint: str | None,
    settings: dict[str, str],
    master: str | None,
    conf: dict[str, str],
    *,
    announce: bool,
) -> list[tuple[str, str, str, str]]:
    """Return name, position, translation and plan of each query. Only tables of ours need Spark."""
    from pyspark_rocketmq.cli.job_commands.quiet_spark import announce_spark, quiet_spark
    from pyspark_rocketmq.sql.parse import parse_statements
    from pyspark_rocketmq.sql.statements import CreateTable

    if not any(isinstance(statement, CreateTable) for statement in parse_statements(text)):
        return []
    from pyspark.sql import SparkSession

    from pyspark_rocketmq.sql.plan.plan_check import plan_job

    with quiet_spark():
        running = SparkSession.getActiveSession()
        if announce and running is None:
            announce_spark()
        spark = running or _session(master, conf)
        try:
            found = plan_job(spark, text, checkpoint_location=checkpoint, settings=settings)
            return [(query.name, str(query.position), query.spark_sql, query.explain()) for query in found]
        finally:
            if running is None:
                spark.stop()


def _print_plans(plans: list[tuple[str, str, str, str]], *, json: bool) -> None:
    for name, position, translated, plan in plans:
        if json:
            print_json({"query": name, "position": position, "translated": translated, "plan": plan})
            continue
        print(f"{position}: {f'INSERT INTO {name}' if name else 'query'}")
        if translated:
            print(f"translated to Spark's SQL:\n{translated}\nplan:")
        print(plan)


def _run(
    text: str,
    checkpoint: str | None,
    settings: dict[str, str],
    master: str | None,
    conf: dict[str, str],
    *,
    json: bool,
) -> None:
    from pyspark_rocketmq.cli.job_commands.quiet_spark import (
        announce_spark,
        print_counts,
        print_written,
        quiet_spark,
        stop_on_interrupt,
    )
    from pyspark_rocketmq.spark.monitor.input_counts import InputCounts
    from pyspark_rocketmq.sql.job import execute

    with quiet_spark():
        if not json:  # of which standard error has nothing but the error
            announce_spark()
        spark = _session(master, conf)
        stop_on_interrupt()
        counts = InputCounts()
        try:
            with execute(spark, text, checkpoint_location=checkpoint, settings=settings) as job:
                print_written(job.written, json=json)
                for rows, position in zip(job.results, job.result_positions, strict=True):
                    with job.add_position(position):
                        show(rows, json=json)
                for query in job.queries:
                    counts.follow(spark, query)
                    if json:
                        print_json({"started": query.name})
                    else:
                        console().print(f"started {query.name}", markup=False)
                job.await_termination()
        finally:
            print_counts(counts, json=json)
            spark.stop()


def _shell(
    checkpoint: str | None, settings: dict[str, str], master: str | None, conf: dict[str, str]
) -> None:
    if not sys.stdin.isatty():
        raise OptionError("a shell needs a terminal: name a file, or - for standard input")
    try:
        from pyspark_rocketmq.cli.shell.prompt import history_file, make_prompt
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("prompt_toolkit"):
            raise
        raise OptionError(
            "the shell needs `pip install 'pyspark-rocketmq[shell]'`, or name a file"
        ) from error
    from pyspark_rocketmq.cli.job_commands.quiet_spark import announce_spark, quiet_spark, stop_on_interrupt
    from pyspark_rocketmq.cli.shell.shell import Shell
    from pyspark_rocketmq.sql.job import execute

    with quiet_spark():
        announce_spark()
        spark = _session(master, conf)
        stop_on_interrupt()
        try:
            with execute(spark, "", checkpoint_location=checkpoint, settings=settings) as job:
                prompt = make_prompt(lambda: job.columns, history_file())
                Shell(spark, job, prompt.prompt, console()).run()
        finally:
            spark.stop()


def _session(master: str | None, conf: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    # Spark's workers, including the one that looks up data sources, must run this interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("pyspark-rocketmq sql")
    if master is not None:
        builder = builder.master(master)
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def show(rows: DataFrame, *, json: bool) -> None:
    """Print the rows of a batch query. A streaming query is an error."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    from pyspark_rocketmq.cli.job_commands.rows import first_rows

    if rows.isStreaming:
        raise OptionError(
            "a query without INSERT INTO needs batch mode: SET 'runtimeMode' = 'batch' before it"
        )
    if json:
        lines = rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
        print_json([loads(line) for (line,) in lines])
        return
    found = first_rows(rows, _SHOWN_ROWS + 1)
    print_table(rows.columns, found[:_SHOWN_ROWS])
    if len(found) > _SHOWN_ROWS:
        console().print(f"the first {_SHOWN_ROWS} rows; LIMIT asks for fewer")
