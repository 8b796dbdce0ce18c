"""``pyspark-rocketmq streams``: one process runs a job, another stands by; list, explain, stop."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.spark.streams_standby_job import NAME
from tests.support.cli import CommandLine
from tests.support.topics import fill
from tests.support.wait import eventually

from pyspark_rocketmq.cli.job_commands.rows import cells, plain_rows

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = str(Path(__file__).with_name("streams_standby_job.py"))
PATIENCE_S = 120


@pytest.fixture
def cli(mq, capsys, monkeypatch, tmp_path) -> CommandLine:
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "home"))
    return CommandLine(capsys, monkeypatch, mq.name_server)


@contextlib.contextmanager
def process(*args: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a script by the command line; it dies with the test, and its JVM too."""
    log_file = folder / f"{args[-1]}.log"
    with log_file.open("wb") as log:
        running = subprocess.Popen(
            [sys.executable, "-m", "pyspark_rocketmq", "streams", "run", SCRIPT, *args],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            start_new_session=True,
        )
    try:
        yield running, log_file
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(timeout=30)


def java_of(pid: int) -> psutil.Process:
    """Return the JVM of a process."""
    (java,) = (child for child in psutil.Process(pid).children() if child.name() == "java")
    return java


def numbers(folder: Path) -> list[int]:
    """Return what is in the files that count."""
    log = folder / "out" / "_spark_metadata"
    files = {  # every tenth entry repeats those before it
        json.loads(line)["path"].removeprefix("file://")
        for entry in log.glob("[0-9]*")
        for line in entry.read_text().splitlines()[1:]
    }
    return sorted(int(json.loads(line)["n"]) for f in files for line in Path(f).read_text().splitlines())


@pytest.mark.needs("programs")
@pytest.mark.timeout(300)
def test_a_standby_takes_over_and_stops_when_it_is_told(cli, mq, topic, client, tmp_path):
    name = topic(queues=1)

    def put(number: int) -> None:
        fill(client, name, [json.dumps({"n": number})])

    def jobs() -> dict[str, object]:
        return {job["job"]: job for job in cli("streams", "list", "--json").json()}

    place = (mq.name_server, name, str(tmp_path))
    with (
        process(*place, "first", folder=tmp_path) as (first, _),
        process(*place, "standby", folder=tmp_path) as (standby, log),
    ):
        put(1)
        eventually(lambda: numbers(tmp_path) == [1], PATIENCE_S, what="the first row")
        assert (jobs()[NAME]["running"], jobs()[NAME]["pid"]) == (True, first.pid)
        with process(*place, "second", folder=tmp_path) as (second, refused):
            assert second.wait(timeout=60) == 1
        assert f"the job '{NAME}' is already running" in refused.read_text()
        eventually(lambda: "@ready" in log.read_text(), PATIENCE_S, what="the standby")
        java = java_of(first.pid)
        java.suspend()  # it would end a second after its Python, and may write until then
        first.kill()
        put(2)
        eventually(
            lambda: "has not ended yet" in log.read_text(), PATIENCE_S, what="the standby, which waits"
        )
        assert numbers(tmp_path) == [1]
        java.resume()
        eventually(lambda: numbers(tmp_path) == [1, 2], PATIENCE_S, what="the row of the one that stood by")
        assert jobs()[NAME]["pid"] == standby.pid
        assert NAME in cli("streams", "list").out
        assert cli("streams", "stop", NAME).out == f"{NAME} has stopped\n"
        assert standby.wait(timeout=60) == 0, log.read_text()[-4_000:]
        end = log.read_text().partition("@stopped\n")[2]
        counted = rf"{re.escape(NAME)}: \d+ rows read in \d+ batch(es)?\n"
        assert re.fullmatch(counted, end), f"an end without noise, but {end!r}"
    assert not jobs()[NAME]["running"]
    assert cli("streams", "stop", NAME).out == f"{NAME} is not running\n"
    assert cli("streams", "stop", NAME, "--json").json() == {"job": NAME, "wasRunning": False}
    assert "there is no job 'nope'" in cli("streams", "stop", "nope").err


def test_explain_shows_the_steps_and_starts_nothing(cli, spark, tmp_path):
    picture = tmp_path / "steps.svg"
    arguments = (str(EXAMPLES / "streams_split.py"), "h:1", "people", str(tmp_path))
    shown = cli("streams", "explain", "--picture", str(picture), *arguments)
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0] == "job namespace.split"
    assert [line.split()[:2] for line in lines[1:]] == [
        ["fromRocketmq#1", "source"],
        ["label#2", "python"],
        ["select#3", "native"],
        ["toJson#4", "sink"],
        ["select#5", "native"],
        ["toJson#6", "sink"],
    ]
    (told,) = cli("streams", "explain", "--json", *arguments).json()
    assert told["job"] == "namespace.split"
    assert told["steps"][4] == {"name": "select#5", "kind": "native", "details": "", "after": ["label#2"]}
    texts = {element.text for element in ET.parse(picture).getroot().iter() if element.text}
    assert {"fromRocketmq#1 · source", "label#2 · python"} <= texts
    assert not spark.streams.active
    (tmp_path / "empty.py").write_text("")
    assert "starts no pipeline" in cli("streams", "explain", str(tmp_path / "empty.py")).err
    assert cli("streams", "run", str(tmp_path / "nope.py")).code == 2


def test_times_of_printed_rows_carry_their_offset(spark):
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        rows = plain_rows(
            spark.sql(
                "SELECT 1 AS n, NULL AS none, TIMESTAMP '2030-01-31 08:00:00Z' AS at,"
                " named_struct('start', TIMESTAMP '2030-01-31 08:00:00Z') AS window"
            )
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    at = "2030-01-31T13:45:00.000+05:45"
    assert rows == [{"n": 1, "none": None, "at": at, "window": {"start": at}}]
    assert cells(rows[0]) == [1, None, at, f'{{"start": "{at}"}}']
