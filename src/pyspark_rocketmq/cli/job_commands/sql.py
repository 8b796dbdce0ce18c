"""``pyspark-rocketmq sql``: run a SQL job file."""

from __future__ import annotations

import os
import signal
import sys
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pyspark_rocketmq.cli.connect import pairs
from pyspark_rocketmq.cli.printing import AsJson, console, examples, print_json, print_table
from pyspark_rocketmq.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["EXAMPLES", "show", "sql"]

EXAMPLES: Final = examples(
    "sql job.sql --checkpoint /var/lib/job",
    "sql job.sql --set trigger=availableNow --checkpoint /tmp/job",
    "sql report.sql --set runtimeMode=batch",
    "sql job.sql --check",
)

_SHOWN_ROWS: Final = 100


def sql(
    file: Annotated[
        str, typer.Argument(help="File of statements, separated by semicolons; - is standard input.")
    ],
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
    check: Annotated[bool, typer.Option("--check", help="Only parse the file.")] = False,
    json: AsJson = False,
) -> None:
    """Run a SQL job: CREATE TABLE, CREATE VIEW, and INSERT INTO as streaming queries.

    Runs until every query has ended. Queries without `trigger=availableNow` run until they fail or the
    command is interrupted. After a restart with the same checkpoint the job continues where it stopped. An
    error in the file is reported with line and column, and exit code 2.
    """
    text = _read(file)
    # Spark and the parser take a second to import: only this command waits for them.
    from pyspark_rocketmq.sql.job import execute
    from pyspark_rocketmq.sql.parse import parse_statements

    if check:
        count = len(parse_statements(text))
        if json:
            print_json({"statements": count})
        else:
            console().print(f"{count} statements")
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM stops the queries, too
    spark = _session(master, pairs(conf))
    try:
        with execute(spark, text, checkpoint_location=checkpoint, settings=pairs(settings)) as job:
            for rows in job.results:
                show(rows, json=json)
            for query in job.queries:
                if json:
                    print_json({"started": query.name})
                else:
                    console().print(f"started {query.name}")
            job.await_termination()
    finally:
        spark.stop()


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"the job cannot be read: {error.strerror}", file=file) from error


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

    if rows.isStreaming:
        raise OptionError(
            "a query without INSERT INTO needs batch mode: SET 'runtimeMode' = 'batch' before it"
        )
    if json:
        lines = rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
        print_json([loads(line) for (line,) in lines])
        return
    found = rows.limit(_SHOWN_ROWS + 1).collect()
    print_table(rows.columns, [tuple(row) for row in found[:_SHOWN_ROWS]])
    if len(found) > _SHOWN_ROWS:
        console().print(f"the first {_SHOWN_ROWS} rows; LIMIT asks for fewer")
