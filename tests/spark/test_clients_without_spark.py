"""Environments without Spark's JVM: a client of Spark Connect, and Sail, an engine without Java."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.support.page_code import python_blocks
from tests.support.standalone import DEPLOY, programs
from tests.support.wait import eventually
from tests.support.wheel import ROOT, Installation, build

from pyspark_rocketmq.devcluster.system.ports import free_port
from pyspark_rocketmq.spark.features import FEATURES
from pyspark_rocketmq.testing import MockCluster

pytestmark = [pytest.mark.needs("programs", "packages"), pytest.mark.timeout(1_200)]

CLIENT = "pyspark-client==" + ("4.2.0" if FEATURES.has("4.2") else "{}.{}.*".format(*FEATURES.level))
"""A client that is not newer than the server."""
NEEDED_BY_CLIENT = ("pandas", "grpcio", "grpcio-status", "googleapis-common-protos", "PyYAML", "zstandard")
SAIL = "pysail==0.7.2"
CONNECT_JOB = """
import importlib.util, json, sys
from pyspark.sql import SparkSession
server, name_server, folder = sys.argv[1:]
assert importlib.util.find_spec("py4j") is None
spark = SparkSession.builder.remote(server).getOrCreate()
source = {"nameServer": name_server, "topic": "orders"}
sent = spark.createDataFrame([(bytearray(b"one"),), (bytearray(b"two"),)], "body binary")
sent.write.format("rocketmq").mode("append").options(**source).save()
batch = spark.read.format("rocketmq").options(**source).load()
stream = spark.readStream.format("rocketmq").options(**source, startingOffsets="earliest").load()
writer = stream.selectExpr("CAST(body AS STRING) body").writeStream.format("json").trigger(availableNow=True)
query = writer.start(folder + "/out", checkpointLocation=folder + "/checkpoint")
assert query.awaitTermination(300)
print("@seen " + json.dumps({
    "batch": sorted(bytes(row.body).decode() for row in batch.select("body").collect()),
    "stream": sorted(row.body for row in spark.read.schema("body string").json(folder + "/out").collect()),
}))
"""
SAIL_JOB = """
import json
rows = [(bytearray(b"one"), "k1"), (bytearray(b"two"), "k2")]
sent = spark.createDataFrame(rows, "body binary, keys string")
sent.write.format("rocketmq").mode("append").options(nameServer="127.0.0.1:9876", topic="orders").save()
orders.load().createOrReplaceTempView("orders")
rows = spark.sql("SELECT keys, CAST(body AS STRING) FROM orders WHERE queueOffset >= 0").collect()
print("@seen " + json.dumps(sorted(map(list, rows))))
"""
"""What follows the code of deployment.md."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (wheel,) = build(ROOT, tmp_path_factory.mktemp("dist"), "wheel")
    return wheel


@pytest.fixture
def client(wheel: Path, tmp_path: Path) -> Installation:
    """An environment with the wheel, and with pyspark-client in place of PySpark."""
    environment = Installation(tmp_path / "client", wheel)
    environment.pip("--no-deps", CLIENT, timeout_s=300)
    environment.lend(*map(Requirement, NEEDED_BY_CLIENT))
    return environment


@pytest.fixture
def messages() -> Iterator[MockCluster]:
    with MockCluster({"orders": 2}) as mq:
        yield mq


def written(text: str, folder: Path) -> str:
    """Write a job to a file: Connect takes ``python -c`` for its own tests, and wants Spark's home then."""
    (folder / "job.py").write_text(text, encoding="utf-8")
    return "job.py"


def seen(done: subprocess.CompletedProcess[str]) -> object:
    line = next((line for line in done.stdout.splitlines() if line.startswith("@seen ")), None)
    assert line is not None, done.stderr[-4_000:]
    return json.loads(line[6:])


def test_a_connect_client_reads_writes_and_streams(
    client: Installation, messages: MockCluster, tmp_path: Path
) -> None:
    """The server has the package; its Python is that of the tests, and its Spark is not older."""
    port = free_port(random.Random())
    settings = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    with programs(tmp_path) as start:
        log = start(
            "connect",
            f"{DEPLOY}.SparkSubmit",
            *(word for pair in settings.items() for word in ("--conf", "=".join(pair))),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
        ).log
        eventually(lambda: "Spark Connect server started" in log.read_text(), 90, what="a Connect server")
        done = client.run(
            *("python", written(CONNECT_JOB, tmp_path)),
            *(f"sc://127.0.0.1:{port}", messages.name_server, str(tmp_path)),
            cwd=tmp_path,
            timeout_s=300,
        )
    assert seen(done) == {"batch": ["one", "two"], "stream": ["one", "two"]}


def test_sail_reads_and_writes_without_java(
    client: Installation, messages: MockCluster, tmp_path: Path
) -> None:
    client.pip("--no-deps", SAIL, timeout_s=300)
    (block,) = (code for code in python_blocks("deployment.md") if "pysail" in code)
    job = written((block + SAIL_JOB).replace("127.0.0.1:9876", messages.name_server), tmp_path)
    done = client.run("python", job, cwd=tmp_path, timeout_s=120, JAVA_HOME="/no/java")
    assert seen(done) == [["k1", "one"], ["k2", "two"]]
