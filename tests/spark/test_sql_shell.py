"""The shell of SQL with a real session: results, errors, streams, and Ctrl-C."""

from __future__ import annotations

import _thread
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit, struct
from rich.console import Console
from tests.support.topics import fill
from tests.support.wait import eventually

from pyspark_rocketmq.cli.job_commands.quiet_spark import stop_on_interrupt
from pyspark_rocketmq.cli.shell.live_rows import LiveRows
from pyspark_rocketmq.cli.shell.shell import Shell
from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.options import OutputMode
from pyspark_rocketmq.sql import SqlJob, execute
from pyspark_rocketmq.sql.flinksql.relations import CHANGE

READY = b"\x1b[?2004h"
"""What the prompt writes when it can take a line."""


class Typist:
    """Types lines; a line may be something to do first."""

    def __init__(self, *lines: str | Callable[[], object]) -> None:
        self._lines = list(lines)

    def __call__(self) -> str:
        while self._lines:
            line = self._lines.pop(0)
            if isinstance(line, str):
                return line
            line()
        raise EOFError


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Iterator[SqlJob]:
    """A job whose Ctrl-C does what it does in the command."""
    sparks_own = signal.getsignal(signal.SIGINT)
    stop_on_interrupt()
    try:
        with execute(spark, "", checkpoint_location=str(tmp_path / "checkpoint")) as job:
            yield job
    finally:
        signal.signal(signal.SIGINT, sparks_own)
    spark.createDataFrame([], "unused INT")  # after Ctrl-C: the session is the active one for other tests


@pytest.fixture
def shown() -> Console:
    return Console(file=io.StringIO(), width=120)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def interrupt_when(condition: Callable[[], object]) -> threading.Thread:
    """Press Ctrl-C when a condition holds."""

    def press() -> None:
        eventually(condition, 120)
        _thread.interrupt_main()

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def interrupted() -> None:
    raise KeyboardInterrupt


def test_statements_run_and_an_error_ends_none_of_it(spark, job, shown, capsys) -> None:
    ask = Typist(
        "SELECT 1 AS one, 'x' AS letter;",
        interrupted,
        "SELECT nothing;",
        "CREATE TABLE t (a INTT) USING rocketmq;",
        "CREATE VIEW v AS SELECT id AS number FROM range(3); SELECT sum(number) AS total FROM v;",
        "STOP JOB 'none';",
        "help",
        "quit",
        "SELECT 'after quit';",
    )
    Shell(spark, job, ask, shown).run()
    out, errors = printed(shown), capsys.readouterr().err
    assert "one" in out
    assert "total" in out
    assert "3" in out
    assert "no job 'none'" in out
    assert "SHOW JOBS;" in out
    assert "after quit" not in out
    assert "line 1, column 8" in errors
    assert "line 1, column 19: expected the type of a" in errors
    assert job.columns == {"v": ("number",)}


def test_streams_are_shown_started_and_stopped(spark, job, shown, topic, client, name_server, capsys) -> None:
    first, second = topic(queues=1), topic(queues=1)
    fill(client, first, [OutgoingMessage(first, b'{"a": %d}' % number) for number in range(25)])
    options = f"'connector' = 'rocketmq', 'nameServer' = '{name_server}', 'startingOffsets' = 'earliest'"
    tables = (
        f"CREATE TABLE numbers (a INT) WITH ({options}, 'topic' = '{first}');"
        f"CREATE TABLE copies (a INT) WITH ({options}, 'topic' = '{second}');"
    )

    def press_at_the_first_rows() -> None:
        interrupt_when(lambda: [q for q in spark.streams.active if q.lastProgress and q.name is None])

    ask = Typist(
        tables,
        "SET 'trigger' = 'availableNow'; SELECT a + 100 AS a FROM numbers;",
        "INSERT INTO copies SELECT a FROM numbers;",
        lambda: eventually(lambda: not job.queries[0].isActive, 240, what="the copies"),
        "SET 'trigger' = '0 s'; INSERT INTO copies SELECT a FROM numbers;",
        press_at_the_first_rows,
        "SELECT a + 200 AS a FROM numbers;",
        "CREATE OR REPLACE TABLE more (a INT) USING rocketmq "
        f"OPTIONS (nameServer '{name_server}', topic '{second}'); INSERT INTO more VALUES (-1);",
        "SHOW JOBS;",
        lambda: eventually(lambda: job.queries[1].isActive, 60),
        "STOP JOB 'copies-2';",
    )
    Shell(spark, job, ask, shown).run()
    out = printed(shown)
    assert "the newest 20 of 25 rows" in out
    assert "124" in out
    assert "104" not in out, "the first five are not shown"
    assert "started copies\n" in out
    assert "stopped\n" in out, "Ctrl-C stops the SELECT"
    assert re.search(r"copies-2 +running", out)
    assert "stopped copies-2" in out
    assert "more: 1 row written" in capsys.readouterr().err, "a write after Ctrl-C"
    assert not [query for query in job.queries if query.isActive]


def test_changes_of_a_column_with_a_dot_are_shown(spark, shown, tmp_path) -> None:
    (tmp_path / "rows.txt").write_text("one")
    change = struct(lit("+U").alias("op")).alias(CHANGE)
    rows = spark.readStream.text(str(tmp_path)).select(change, col("value").alias("a.b"))
    LiveRows(rows, OutputMode.APPEND, None).watch(shown)
    assert re.search(r"op +a\.b", printed(shown))
    assert re.search(r"\+U +one", printed(shown))


def test_a_stream_is_shown_as_a_query_of_the_job_would_write_it(spark, job, shown, tmp_path) -> None:
    """Aggregates of more groups than Spark hashes, in order; and a join of two windows of one stream."""
    rows = [{"k": n * 7919 % 300, "n": n, "at": f"2026-01-31T{8 + n // 600:02}:00:00Z"} for n in range(1_800)]
    folder = tmp_path / "seen"
    folder.mkdir()
    (folder / "rows.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    hours = "TABLE(TUMBLE(TABLE seen, DESCRIPTOR(at), INTERVAL '1' HOUR))"
    counts = f"(SELECT window_start AS s, COUNT(*) AS n FROM {hours} GROUP BY window_start, window_end)"
    ask = Typist(
        "CREATE TABLE seen (k INT, n INT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ("
        f"'connector' = 'filesystem', 'format' = 'json', 'path' = '{folder}');",
        "SET 'trigger' = 'availableNow'; SELECT k, LISTAGG(CAST(n AS STRING)) AS every FROM seen GROUP BY k;",
        f"SELECT a.n * 10000 + b.n AS found FROM {counts} AS a JOIN {counts} AS b ON a.s = b.s;",
        "quit",
    )
    Shell(spark, job, ask, shown).run()
    words = printed(shown).split()
    lists = [list(map(int, word.split(","))) for word in words if word.count(",") == 5]
    assert len(lists) == 20
    assert lists == [sorted(numbers) for numbers in lists]
    assert words.count("6,000,600") == 2, "both hours that are over"


@pytest.mark.needs("programs")
@pytest.mark.timeout(600)
def test_a_terminal_of_its_own(tmp_path: Path) -> None:
    """With a real terminal: Ctrl-C stops a query, and the shell goes on."""
    outer, inner = pty.openpty()
    command = [sys.executable, "-m", "pyspark_rocketmq", "sql", "--master", "local[2]"]
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm", "COLUMNS": "100"}
    shell = subprocess.Popen(
        command, stdin=inner, stdout=inner, stderr=inner, env=environ, start_new_session=True, close_fds=True
    )
    os.close(inner)
    seen = bytearray()
    reader = threading.Thread(target=_read_all, args=(outer, seen), daemon=True)
    reader.start()
    try:
        eventually(lambda: READY in seen, 240, what="the prompt")
        os.write(outer, b"SELECT 40 + 2 AS answer;\r")
        eventually(lambda: b"42" in seen, 120, what="the answer")
        os.write(outer, b"SELECT upper('begun'); SELECT count(*) FROM range(1000000000000) AS a;\r")
        eventually(lambda: b"BEGUN" in seen, 120, what="the second query")
        prompts = seen.count(READY)
        shell.send_signal(signal.SIGINT)
        eventually(lambda: b"stopped" in seen, 120, what="the end of the query")
        eventually(lambda: seen.count(READY) > prompts, 60, what="the prompt after it")
        os.write(outer, b"quit\r")
        assert shell.wait(120) == 0
        assert "answer" in (tmp_path / "pyspark-rocketmq" / "sql-history").read_text()
    finally:
        shell.kill()
        shell.wait(60)
        os.close(outer)


def _read_all(descriptor: int, seen: bytearray) -> None:
    while True:
        try:
            seen += os.read(descriptor, 65_536)
        except OSError:  # the other end is closed
            return
