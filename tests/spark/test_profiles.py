"""A profile in a Spark program: a batch, a stream and a sink, and no secret in checkpoint, output or log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.testing import MockBroker

pytestmark = [pytest.mark.needs("programs"), pytest.mark.timeout(1_200)]

SECRET = "planted-Secret-4711"
PROGRAM = """
import sys
from pyspark.sql import SparkSession
folder = sys.argv[1]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("INFO")
named = {"profile": "mock"}
batch = spark.read.format("rocketmq").options(**named, topic="orders").load()
batch.select("body").write.format("rocketmq").mode("append").options(**named, topic="copies").save()
named |= {"topic": "copies", "startingOffsets": "earliest"}
stream = spark.readStream.format("rocketmq").options(**named).load()
query = (
    stream.selectExpr("CAST(body AS STRING) body").writeStream.format("json").trigger(availableNow=True)
    .start(folder + "/out", checkpointLocation=folder + "/checkpoint")
)
assert query.awaitTermination(600)
print("@seen", sorted(row.body for row in spark.read.schema("body string").json(folder + "/out").collect()))
"""


def test_a_program_names_its_cluster(tmp_path: Path) -> None:
    with MockBroker({"orders": 1, "copies": 1}, credentials=Credentials("planted-user", SECRET)) as mq:
        for body in (b"one", b"two"):
            mq.send(OutgoingMessage("orders", body))
        secret = tmp_path / "secret"
        secret.write_text(SECRET)
        config = tmp_path / "config.toml"
        config.write_text(
            f"[profiles.mock]\nnameServer = '{mq.name_server}'\nrequestTimeoutMs = 60_000\n"
            f"accessKey = {{ command = ['echo', 'planted-user'] }}\nsecretKey = {{ file = '{secret}' }}\n"
        )
        lake = tmp_path / "folder"
        lake.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(lake)],
            env={**os.environ, "ROCKETMQ_CONFIG_FILE": str(config), "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert "@seen ['one', 'two']" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    files = [path for path in lake.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
