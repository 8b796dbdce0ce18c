"""Faults of a real cluster's servers, one after the other, while a workload runs."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.support.wait import eventually
from tests.support.workload import Figures, Workload

from pyspark_rocketmq.client import Admin, Client
from pyspark_rocketmq.devcluster import DevCluster

_READ_ONLY, _READ_WRITE = "4", "6"
TOPIC = "chaos"


def chaos_cluster() -> DevCluster:
    """Two masters with a slave each that may be read, and two name servers."""
    return DevCluster(
        brokers=2, slaves=1, name_servers=2, broker_config={"slaveReadEnable": "true"}, start_timeout_s=300
    )


class _Disturber:
    """Each fault is made, lasts until some more messages have got through in spite of it, and is undone."""

    def __init__(self, cluster: DevCluster, client: Client, work: Workload) -> None:
        self._cluster = cluster
        self._admin = Admin(client)
        self._work = work

    def kinds(self) -> dict[str, Callable[[], None]]:
        return {
            "master killed (kill -9), started again": self._kill_master,
            "master paused for longer than the time-outs": self._pause_master,
            "slave killed, started again": self._kill_slave,
            "name server killed, started again": self._kill_name_server,
            "both name servers killed, started again": self._kill_name_servers,
            "broker made read-only": self._read_only,
            "topic grown by two queues": self._grow,
            "whole cluster killed, started again": self._kill_all,
        }

    def wait_for_more(self, messages: int = 500, timeout_s: float = 60) -> None:
        """Wait until more messages were acknowledged."""
        target = self._work.sent + messages
        eventually(lambda: self._work.sent >= target, timeout_s, what=f"{messages} more messages")

    def _kill_master(self) -> None:
        master = self._cluster.broker("broker-a")
        master.kill()
        self.wait_for_more()  # through the other master
        master.start()

    def _pause_master(self) -> None:
        master = self._cluster.broker("broker-b")
        master.pause()
        try:
            time.sleep(6)  # this is how long the fault lasts
        finally:
            master.resume()

    def _kill_slave(self) -> None:
        slave = self._cluster.broker("broker-a-1")
        slave.kill()
        self.wait_for_more()
        slave.start()

    def _kill_name_server(self) -> None:
        first = self._cluster.name_servers[0]
        first.kill()
        self.wait_for_more()
        first.start()

    def _kill_name_servers(self) -> None:
        for server in self._cluster.name_servers:
            server.kill()
        self.wait_for_more()  # by the routes that are known
        for server in self._cluster.name_servers:
            server.start()

    def _read_only(self) -> None:
        self._admin.set_broker_config("broker-b", {"brokerPermission": _READ_ONLY})
        self.wait_for_more()
        self._admin.set_broker_config("broker-b", {"brokerPermission": _READ_WRITE})

    def _grow(self) -> None:
        queues = len(self._admin.topic_route(TOPIC).write_queues()) // 2
        self._admin.create_topic(TOPIC, queues=queues + 1)

    def _kill_all(self) -> None:
        servers = self._cluster.servers
        for server in reversed(servers):
            server.kill()
        for server in servers:
            server.launch()
        for server in servers:
            server.await_up()


def disturb_cluster(cluster: DevCluster, *, rounds: int = 1, pace_s: float = 0.02) -> Figures:
    """Run a workload on a real cluster and every kind of fault of its servers, so many times."""
    with Client(cluster.name_server) as client:
        Admin(client).create_topic(TOPIC, queues=2)
        work = Workload(cluster.name_server, TOPIC, pace_s=pace_s, read_stall_ms=120_000)
        disturber = _Disturber(cluster, client, work)
        with work.running():
            for _ in range(rounds):
                for kind, fault in disturber.kinds().items():
                    fault()
                    work.figures.faults[kind] += 1
                    disturber.wait_for_more()
        return work.figures
