"""The run's own broker, and topics filled with realistic content by a Java producer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark_rocketmq.client import Admin, Client
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.devcluster.settings import jvm_arguments

JAVA_SOURCES = Path(__file__).parent / "java"

_PATIENT = {"waitTimeMillsInSendQueue": "10000"}
"""On a busy machine the broker must not reject messages that fill a topic (default: after 200 ms). Reading
has another setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A topic's content, with its numbers of queues per broker and of brokers. Filled once per run."""

    messages: int = 2_000_000
    body_bytes: int = 1024
    queues: int = 4
    brokers: int = 1
    compression: str = "none"

    @property
    def topic(self) -> str:
        """The name of the case's topic."""
        kind = "" if self.compression == "none" else f"-{self.compression}"
        many = f"-b{self.brokers}" if self.brokers > 1 else ""
        return f"bench-{self.messages}x{self.body_bytes}-q{self.queues}{many}{kind}"


@dataclass(slots=True)
class Bench:
    """A running broker, the compiled Java programs, and the topics filled so far."""

    cluster: DevCluster
    classes: Path
    _filled: set[Case] = field(default_factory=set)

    @property
    def name_server(self) -> str:
        """The name servers' address."""
        return self.cluster.name_server

    def broker_pids(self) -> list[int]:
        """The brokers' process ids."""
        return [broker.pid for broker in self.cluster.brokers if broker.pid is not None]

    def fill(self, case: Case, *, timeout_s: float = 900) -> None:
        """Create and fill the topic of a case, unless this run did so before."""
        if case in self._filled:
            return
        brokers = [broker.name for broker in self.cluster.brokers][: case.brokers]
        with Client(self.name_server) as client:
            Admin(client).create_topic(case.topic, queues=case.queues, brokers=brokers)
        self.cluster.run_java(
            "Fill",
            *(self.name_server, case.topic, str(case.messages), str(case.body_bytes), case.compression),
            classes=self.classes,
            timeout_s=timeout_s,
        )
        self._filled.add(case)

    def java_command(self, main_class: str, *args: str, heap: str = "1g") -> tuple[str, ...]:
        """Return the command line of one of the Java programs."""
        home = self.cluster.home / "tools"
        jars = [home / "conf", self.classes, *self.cluster.jars]
        class_path = ":".join(map(str, jars))
        java = str(self.cluster.java.executable)
        return (java, *jvm_arguments(home, heap, ()), "-cp", class_path, main_class, self.name_server, *args)


@contextmanager
def bench(broker_config: Mapping[str, str] | None = None, brokers: int = 1) -> Iterator[Bench]:
    """Start brokers, with default limits unless set, and compile the Java programs."""
    settings = {**_PATIENT, **(broker_config or {})}
    with DevCluster(broker_config=settings, brokers=brokers) as cluster:
        yield Bench(cluster, cluster.compile_java(*sorted(JAVA_SOURCES.glob("*.java"))))
