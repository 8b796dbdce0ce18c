"""The wheel without PySpark: the client and the command line work, the rest says what it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.wheel import ROOT, Installation, build

from pyspark_rocketmq.testing import MockCluster

CLIENT = """
import importlib.util, sys
for name in ("pyspark", "py4j", "pandas"):
    assert importlib.util.find_spec(name) is None, name
from pyspark_rocketmq import Client, OutgoingMessage, Producer, PullConsumer
with Client(sys.argv[1]) as client:
    with Producer(client) as producer:
        for body in (b"one", b"two"):
            producer.send(OutgoingMessage("orders", body))
    consumer = PullConsumer("report", client=client)
    for queue in consumer.fetch_subscribe_message_queues("orders"):
        print([message.body for message in consumer.pull(queue, "*", 0).messages])
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    (wheel,) = build(ROOT, tmp_path_factory.mktemp("dist"), "wheel")
    return Installation(tmp_path_factory.mktemp("core") / "venv", wheel)


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 1}) as mq:
        yield mq


def test_the_client_writes_and_reads_without_pyspark(
    core: Installation, mq: MockCluster, tmp_path: Path
) -> None:
    done = core.run("python", "-c", CLIENT, mq.name_server, cwd=tmp_path, timeout_s=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[b'one', b'two']\n", "")


def test_the_command_line_works_without_pyspark(core: Installation, mq: MockCluster, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\n")
    for words, said in {
        ("produce", "orders", "--file", "lines"): "2",
        ("consume", "orders"): "two",
        ("topics",): "orders",
        ("doctor",): "only the client works",
        ("report", "--bundle", "bundle.zip"): "manifest.json",
    }.items():
        done = core.run("pyspark-rocketmq", *words, cwd=tmp_path, NAMESRV_ADDR=mq.name_server, timeout_s=300)
        assert said in done.stdout + done.stderr, (words, done)
        assert "Traceback" not in done.stderr
        assert done.returncode == 0, (words, done)


NEEDS_SPARK = pytest.mark.parametrize(
    "code",
    [
        "import pyspark_rocketmq.spark",
        "from pyspark_rocketmq import DefaultSource",
        "from pyspark_rocketmq import RocketMQUtils",
        "from pyspark_rocketmq import lag",
        "import pyspark_rocketmq.dstream",
        "import pyspark_rocketmq.notebook",
        "from pyspark_rocketmq.sql import execute",
        "from pyspark_rocketmq.streams import StreamBuilder",
    ],
)


@NEEDS_SPARK
def test_what_needs_spark_is_one_sentence(core: Installation, tmp_path: Path, code: str) -> None:
    program = f"try:\n    {code}\nexcept ImportError as error:\n    print(type(error).__name__, error)"
    done = core.run("python", "-c", program, cwd=tmp_path, timeout_s=300)
    assert done.stderr == ""
    assert done.stdout.startswith("PySparkRequiredError this part of pyspark-rocketmq needs PySpark 4.")
    assert "pip install 'pyspark-rocketmq[spark]'" in done.stdout
    assert done.stdout.count("\n") == 1


@NEEDS_SPARK
def test_a_pyspark_that_is_too_old_is_one_sentence(core: Installation, tmp_path: Path, code: str) -> None:
    """As PySpark 3.5, it has no data sources in Python."""
    for package in ("pyspark", "pyspark/sql", "py4j"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text('__version__ = "3.5.9"\n')
    program = f"try:\n    {code}\nexcept ImportError as error:\n    print(type(error).__name__, error)"
    done = core.run("python", "-c", program, cwd=tmp_path, timeout_s=300, PYTHONPATH=str(tmp_path))
    assert done.stderr == ""
    needed = "PySparkRequiredError pyspark-rocketmq needs PySpark 4.0 or newer, but this is 3.5.9: "
    assert done.stdout.startswith(needed), done
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("words", [("streams", "list"), ("sql", "job.sql"), ("demo",)])
def test_commands_that_need_spark_are_one_sentence(
    core: Installation, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "job.sql").write_text("CREATE VIEW v AS SELECT 1;")
    done = core.run("pyspark-rocketmq", *words, cwd=tmp_path, timeout_s=300)
    assert done.returncode == 1
    assert done.stderr.count("\n") <= 2, done.stderr
    assert "needs PySpark" in done.stderr
    assert "Traceback" not in done.stderr
