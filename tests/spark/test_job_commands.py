"""``sql`` and ``streams run`` as a newcomer sees them: a line and a place, no trace of Python or Java.

``tests/golden/jobs_on_the_command_line.txt`` has the outputs to read.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.spark_mistakes import mistaken_cluster
from tests.support.wait import eventually

from pyspark_rocketmq.testing import MockCluster

GOLDEN = Path(__file__).parents[1] / "golden" / "jobs_on_the_command_line.txt"
PATIENCE_S = 180
DEFAULTS = """
spark.master local[2]
spark.ui.enabled false
spark.driver.bindAddress 127.0.0.1
spark.driver.host 127.0.0.1
spark.sql.shuffle.partitions 1
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""

READ = """
CREATE TABLE orders ({columns}) WITH ('connector' = 'rocketmq', 'topic' = 'orders',
  'startingOffsets' = 'earliest', 'format' = '{format}');
CREATE TABLE copies (body STRING) WITH ('connector' = 'rocketmq', 'topic' = 'copies', 'format' = 'raw');
"""
COPY = READ.format(columns="body STRING", format="raw") + "INSERT INTO copies SELECT body FROM orders;\n"
JOBS = {
    "wrong-column.sql": "SET 'runtimeMode' = 'batch';\nSELECT price FROM VALUES (1) AS o(cents);\n",
    "wrong-statement.sql": "SELEC 1;\n",
    "wrong-option.sql": COPY.replace("'earliest'", "'begin'"),
    "bad-records.sql": "SET 'trigger' = 'availableNow';"
    + READ.format(columns="cents INT", format="json")
    + "INSERT INTO copies SELECT string(cents) FROM orders;\n",
    "copy.sql": "SET 'trigger' = 'availableNow';" + COPY,
    "copy-on.sql": COPY,
    "batch.sql": READ.format(columns="body STRING", format="raw")
    + "INSERT INTO copies VALUES ('a'), ('b');\n",
}
PIPELINE = """
import sys
from pyspark_rocketmq.streams import StreamBuilder

records = StreamBuilder.dataStream("demo", "{name}").fromRocketmq("orders", "demo", namesrvAddr=sys.argv[1])
query = records.onError("fail").map({function}).toPrint().start()
query.awaitTermination()
"""
SCRIPTS = {
    "nothing.py": "print('no pipeline')\n",
    "typo.py": "from pyspark_rocketmq.streams import StreamBuilder\n\nStreamBuilder('x').sorce('orders')\n",
    "bad_records.py": PIPELINE.format(name="numbers", function="lambda text: int(text)"),
    "lengths.py": PIPELINE.format(name="lengths", function="lambda text: len(text)"),
}


@dataclass(frozen=True)
class Place:
    """A folder with the jobs, and the environment of their processes."""

    folder: Path
    name_server: str
    env: dict[str, str]

    def command(self, file: str) -> list[str]:
        """Return the arguments that run a job."""
        checkpoint = str(self.folder / f"{file}-checkpoint")
        if file.endswith(".sql"):
            return ["sql", file, "--checkpoint", checkpoint]
        return ["streams", "run", file, self.name_server]

    def start(self, file: str) -> subprocess.Popen[str]:
        with (self.folder / f"{file}.out").open("w") as out, (self.folder / f"{file}.err").open("w") as err:
            return subprocess.Popen(
                [sys.executable, "-m", "pyspark_rocketmq", *self.command(file)],
                cwd=self.folder,
                env=self.env,
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
            )

    def shown(self, file: str, code: int) -> str:
        """Return what the user sees, without what differs between two runs."""
        parts = [(self.folder / f"{file}.{stream}").read_text() for stream in ("out", "err")]
        command = "pyspark-rocketmq " + " ".join(self.command(file)[: 2 if file.endswith(".sql") else 4])
        text = f"$ {command}\n{''.join(parts)}(exit code {code})\n"
        text = text.replace(str(self.folder), "FOLDER")
        text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
        text = re.sub(r"sparkLog=\S*-spark\.log", "sparkLog=FILE", text)
        return re.sub(r"\d+ rows read in \d+ batch(es)?", "N rows read in N batches", text)


@pytest.fixture(scope="module")
def mock() -> Iterator[MockCluster]:
    with mistaken_cluster() as cluster:
        cluster.create_topic("copies", 1)
        yield cluster


@pytest.fixture(scope="module")
def place(mock: MockCluster, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("jobs")
    for name, text in {**JOBS, **SCRIPTS, "spark-defaults.conf": DEFAULTS}.items():
        (folder / name).write_text(text)
    env = {
        **os.environ,
        "NAMESRV_ADDR": mock.name_server,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(folder),
        "PYSPARK_ROCKETMQ_STREAMS_HOME": str(folder / "streams"),
        "TMPDIR": str(folder),
        "COLUMNS": "200",
    }
    return Place(folder, mock.name_server, env)


@contextlib.contextmanager
def running(place: Place, file: str) -> Iterator[subprocess.Popen[str]]:
    """Run a job; it dies with the test, and its JVM too."""
    process = place.start(file)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)


def check_quiet(text: str) -> None:
    """Assert that a job's output has nothing of the traces and logs that Spark and py4j write."""
    for trace in ("Traceback", 'File "', "\tat ", "py4j", "WARN", "org.apache"):
        assert trace not in text, text
    told = [line for line in text.splitlines() if not line.isdecimal()]  # without what a pipeline prints
    assert len(told) <= 6, text


@pytest.mark.needs("programs")
@pytest.mark.timeout(900)
def test_jobs_end_with_a_line_and_a_place(place: Place, mock: MockCluster) -> None:
    shown = {}
    for file in (
        "wrong-statement.sql",
        "wrong-option.sql",
        "wrong-column.sql",
        "bad-records.sql",
        "copy.sql",
        "batch.sql",
    ):
        with running(place, file) as process:
            shown[file] = place.shown(file, process.wait(timeout=PATIENCE_S))
    assert len(mock.messages("copies")) == 12
    for file in ("nothing.py", "typo.py", "bad_records.py"):
        with running(place, file) as process:
            shown[file] = place.shown(file, process.wait(timeout=PATIENCE_S))
    with running(place, "lengths.py") as process:
        printed = place.folder / "lengths.py.out"
        eventually(
            lambda: printed.read_text().count("\n") >= 10 or process.poll() is not None,
            PATIENCE_S,
            what="a batch",
        )
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        shown["lengths.py"] = place.shown("lengths.py", process.wait(timeout=60))
    with running(place, "copy-on.sql") as process:
        eventually(
            lambda: len(mock.messages("copies")) >= 22 or process.poll() is not None,
            PATIENCE_S,
            what="the copies",
        )
        os.killpg(process.pid, signal.SIGINT)
        shown["copy-on.sql"] = place.shown("copy-on.sql", process.wait(timeout=60))
    found = place.folder / GOLDEN.name
    found.write_text("\n".join(shown.values()))
    for file, text in shown.items():
        if file != "typo.py":  # an error of the user's own code
            check_quiet(text)
    assert found.read_text() == GOLDEN.read_text(), f"if this is better: cp {found} {GOLDEN}"
