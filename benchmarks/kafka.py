"""A real Kafka (KRaft, one node) from Maven artifacts, and Spark's sink for it: the reference for writing."""

from __future__ import annotations

import base64
import contextlib
import random
import socket
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.devcluster.jars import cache_folder, resolve
from pyspark_rocketmq.devcluster.java import class_path, find_java
from pyspark_rocketmq.devcluster.system.ports import free_port
from pyspark_rocketmq.devcluster.system.process import ChildProcess, Watchdog

KAFKA: Final = ("org.apache.kafka:kafka_2.13:4.1.1",)
CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""4.3.0 is not published. This version runs in Spark 4.3, with the token provider of 4.0.0."""
TOKEN_PROVIDER: Final = ("org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",)
BESIDES: Final = (
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.0",
)


class Kafka:
    """A running Kafka. ``servers`` is its ``host:port``."""

    def __init__(self, servers: str, process: ChildProcess) -> None:
        self.servers = servers
        self._process = process

    def pids(self) -> list[int]:
        """The broker's process id."""
        return [] if self._process.pid is None else [self._process.pid]


@contextmanager
def kafka(folder: Path, *, partitions: int, heap: str = "1g") -> Iterator[Kafka]:
    """Run a Kafka that creates topics on write."""
    java = find_java()
    ports = [free_port(random.Random()) for _ in range(2)]
    settings = folder / "server.properties"
    settings.write_text(_settings(folder / "log", *ports, partitions), encoding="utf-8")
    jars = [*resolve(KAFKA), *_scala()]
    command = [str(java.executable), "-cp", class_path(jars)]
    subprocess.run(
        # One id in 64 begins with a minus sign, which alone would be taken for an option.
        [*command, "kafka.tools.StorageTool", "format", f"--cluster-id={_cluster_id()}", "-c", str(settings)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    with Watchdog() as watchdog:
        process = ChildProcess(
            "kafka",
            [*command[:1], f"-Xmx{heap}", *command[1:], "kafka.Kafka", str(settings)],
            log_file=folder / "kafka.log",
            env={},
            watchdog=watchdog,
        )
        process.start()
        try:
            deadline = Deadline(SYSTEM_CLOCK, 120_000)
            process.wait_until(lambda: _listens(ports[0]), deadline, "does not listen")
            yield Kafka(f"127.0.0.1:{ports[0]}", process)
        finally:
            process.kill()


def spark_settings() -> Mapping[str, str]:
    """Return the settings of a Spark session for Kafka."""
    jars = [*resolve(TOKEN_PROVIDER)[:1], *resolve(BESIDES[:1])[:1], *resolve(BESIDES[1:])[:1]]
    return {
        "spark.jars.packages": CONNECTOR,
        "spark.jars.excludes": "org.apache.spark:spark-token-provider-kafka-0-10_2.13",
        "spark.jars.ivy": str(cache_folder() / "ivy"),
        "spark.jars": ",".join(map(str, jars)),
    }


def spark_arguments() -> list[str]:
    """Return `spark_settings` as arguments of a worker."""
    return [part for pair in spark_settings().items() for part in ("--conf", "=".join(pair))]


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _settings(log_folder: Path, port: int, controller_port: int, partitions: int) -> str:
    return "\n".join(
        [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={log_folder}",
            f"num.partitions={partitions}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "",
        ]
    )


def _cluster_id() -> str:
    """Return an id in Kafka's format: 16 bytes in URL-safe base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _scala() -> list[Path]:
    """Return Scala's library, which Spark's resolver excludes because PySpark includes it."""
    return list((Path(pyspark.__file__).parent / "jars").glob("scala-library-*.jar"))
