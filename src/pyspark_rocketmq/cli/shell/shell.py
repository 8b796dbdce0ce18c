"""The loop of the shell: statements run in one job, errors are printed, and Ctrl-C stops a query only."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from pyspark_rocketmq.cli.failures import report_error
from pyspark_rocketmq.cli.job_commands.quiet_spark import describe_error, print_written
from pyspark_rocketmq.cli.job_commands.rows import first_rows
from pyspark_rocketmq.cli.printing import table
from pyspark_rocketmq.cli.shell.live_rows import LiveRows
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.options import OutputMode
from pyspark_rocketmq.spark.query_end import stop_query
from pyspark_rocketmq.sql.error_positions import reason_of
from pyspark_rocketmq.sql.job import SqlJob
from pyspark_rocketmq.sql.statements import Position

__all__ = ["Shell"]

_TAG: Final = "pyspark-rocketmq-shell"
_SHOWN: Final = 100
_STOP: Final = re.compile(r"STOP\s+JOB\s+['`\"]?([^'`\"]+)['`\"]?", re.IGNORECASE)
_HELP: Final = """\
Statements end with a semicolon: CREATE TABLE, CREATE VIEW, SELECT, INSERT INTO, SET, DESCRIBE, …
SELECT from a stream shows its rows until Ctrl-C. INSERT INTO starts a query that runs in the background.
SHOW JOBS;         the queries of this shell
STOP JOB 'name';   stops one
quit               stops all, and ends the shell; so does Ctrl-D"""


class Shell:
    """Reads statements, and runs them.

    Parameters
    ----------
    spark : SparkSession
    job : SqlJob
        Has the tables, views and settings of all statements.
    ask : callable
        Returns the next statements. Raises EOFError at the end, KeyboardInterrupt at Ctrl-C.
    console : Console
    """

    def __init__(self, spark: SparkSession, job: SqlJob, ask: Callable[[], str], console: Console) -> None:
        self._spark = spark
        self._job = job
        self._ask = ask
        self._console = console
        self._failed: set[str] = set()

    def run(self) -> None:
        """Run until the end of the input, or ``quit``. The job's queries are the caller's to stop."""
        while True:
            try:
                text = self._ask()
            except KeyboardInterrupt:  # at the prompt it discards the line
                continue
            except EOFError:
                return
            command = " ".join(text.split()).rstrip("; ").lower()
            if command in {"quit", "exit"}:
                return
            self._handle(command, text)
            self._report_failures()

    def _handle(self, command: str, text: str) -> None:
        stop = _STOP.fullmatch(text.strip().rstrip("; "))
        if command == "help":
            self._console.print(_HELP, markup=False)
        elif command == "show jobs":
            rows = [(query.name, "running" if query.isActive else "ended") for query in self._job.queries]
            self._console.print(table(("job", "state"), rows))
        elif stop is not None:
            self._stop(stop.group(1))
        elif command:
            self._statements(text)

    def _stop(self, name: str) -> None:
        found = [query for query in self._job.queries if query.name == name]
        for query in found:
            stop_query(query)
        self._console.print(
            f"stopped {name}" if found else f"no job {name!r}: SHOW JOBS lists them", markup=False
        )

    def _statements(self, text: str) -> None:
        started = {id(query) for query in self._job.queries}
        try:
            self._activate()
            self._job.run_text(text, self._show)
            for query in self._job.queries:
                if id(query) not in started:
                    self._console.print(f"started {query.name}", markup=False)
            print_written(self._job.written)
        except KeyboardInterrupt:
            self._spark.interruptTag(_TAG)
            self._console.print("stopped")
        except RocketMQError as error:
            report_error(error, as_json=False)
        except (PySparkException, Py4JError) as error:
            report_error(RocketMQError(describe_error(error)), as_json=False)
        finally:
            self._job.written.clear()

    def _activate(self) -> None:
        """Make the session the active one, which looks up data sources.

        Facts (PySpark 4.3, py4j): after Ctrl-C in a call, the next calls run in another thread of Java, which
        has no active session. ``createDataFrame`` sets it.
        """
        self._spark.createDataFrame([], "unused INT")

    def _show(self, rows: DataFrame, mode: OutputMode, position: Position) -> None:
        with self._job.add_position(position):
            if rows.isStreaming:
                LiveRows(rows, mode, self._job.options.trigger_ms).watch(self._console)
                return
            self._spark.addTag(_TAG)
            try:
                found = first_rows(rows, _SHOWN + 1)
            finally:
                self._spark.removeTag(_TAG)
        self._console.print(table(rows.columns, found[:_SHOWN]))
        if len(found) > _SHOWN:
            self._console.print(f"the first {_SHOWN} rows; LIMIT asks for fewer")

    def _report_failures(self) -> None:
        """Say once that a query in the background has failed."""
        for query in self._job.queries:
            failure = None if query.isActive else query.exception()
            if failure is not None and str(query.runId) not in self._failed:
                self._failed.add(str(query.runId))
                report_error(RocketMQError(f"query {query.name} failed: {reason_of(failure)}"), as_json=False)
