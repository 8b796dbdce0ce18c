"""What the command line does with Spark's log and errors."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger

from pyspark_rocketmq.cli.job_commands.quiet_spark import print_written, quiet_spark
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.spark.monitor.written_rows import WrittenRows

CHILD = """
import os, subprocess, sys
from pyspark_rocketmq.cli.job_commands.quiet_spark import quiet_spark
from pyspark_rocketmq.errors import RocketMQError

try:
    with quiet_spark():
        subprocess.run([sys.executable, "-c", "import sys; print('of the JVM', file=sys.stderr)"], check=True)
        print("of the command", file=sys.stderr)
        raise RocketMQError("failed")
except RocketMQError as error:
    print(open(error.facts["sparkLog"]).read().strip())
subprocess.run([sys.executable, "-c", "import sys; print('after it', file=sys.stderr)"], check=True)
"""


def test_what_children_write_is_in_the_file_and_not_on_the_terminal(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr.splitlines() == ["of the command", "after it"]
    assert done.stdout.splitlines() == ["of the JVM"]


def test_what_batches_have_written(capsys: pytest.CaptureFixture[str]) -> None:
    written = [WrittenRows("orders", 12_345), WrittenRows("one", 1), WrittenRows("untold", None)]
    print_written(written)
    assert capsys.readouterr().err.splitlines() == ["orders: 12,345 rows written", "one: 1 row written"]
    print_written(written[2:], json=True)
    assert json.loads(capsys.readouterr().out) == {"table": "untold", "rowsWritten": None}


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return tmp_path


def test_the_file_is_kept_if_it_may_say_more(logs: Path) -> None:
    with quiet_spark():
        assert len(list(logs.iterdir())) == 1
    assert list(logs.iterdir()) == []
    with pytest.raises(OptionError) as refused, quiet_spark():
        raise OptionError("the user's mistake", option="x")
    assert (refused.value.facts, list(logs.iterdir())) == ({"option": "x"}, [])
    with pytest.raises(KeyboardInterrupt), quiet_spark():
        raise KeyboardInterrupt
    assert list(logs.iterdir()) == []
    with pytest.raises(RocketMQError) as failed, quiet_spark():
        raise AnalysisException("[X] no such column. SQLSTATE: 1\n'Project\n\tat java")
    assert [failed.value.facts["sparkLog"]] == list(logs.iterdir())
    assert failed.value.message == "[X] no such column."


def test_spark_submit_keeps_its_log(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with quiet_spark():
        assert list(logs.iterdir()) == []


def test_a_closed_error_stream_is_no_error(tmp_path: Path) -> None:
    script = (
        "from pyspark_rocketmq.cli.job_commands.quiet_spark import quiet_spark\nwith quiet_spark(): print(1)"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = ["sh", "-c", f"exec {sys.executable} -c '{script}' 2>&-"]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert (done.stdout, list(tmp_path.iterdir())) == ("1\n", [])


def test_py4j_and_pyspark_report_nothing_besides_the_error(caplog: pytest.LogCaptureFixture) -> None:
    report = PySparkLogger.getLogger("SQLQueryContextLogger")
    py4j = logging.LogRecord("root", logging.ERROR, "/lib/py4j/java_gateway.py", 1, "Ctrl-C", None, None)
    with quiet_spark():
        assert not report.isEnabledFor(logging.ERROR)
        logging.getLogger().handle(py4j)
        logging.getLogger("py4j.clientserver").error("Exception occurred while shutting down connection")
        logging.getLogger().error("of the script")
    logging.getLogger().handle(py4j)
    assert report.isEnabledFor(logging.ERROR)
    assert [record.getMessage() for record in caplog.records] == ["of the script", "Ctrl-C"]
