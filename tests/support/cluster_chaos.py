"""Faults of a real cluster's servers, one after the other, while a workload and a Spark stream run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.spark_copy import CopyFigures, SparkCopy
from tests.support.wait import eventually
from tests.support.workload import Figures, Workload

from pyspark_rocketmq.client import Admin, Client, OffsetRange
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.requests import max_offset
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import BrokerNotFoundError, DevClusterError
from pyspark_rocketmq.model import MessageQueue, Permission
from pyspark_rocketmq.remoting.body.config import encode_broker_properties
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.header import GetTopicConfigRequest, UpdateBrokerConfigRequest

_READ_ONLY, _READ_WRITE = "4", "6"
TOPIC, COPY = "chaos", "chaos-copy"
_FIRST = OffsetRange(MessageQueue(TOPIC, "broker-a", 0), 0, 50)


def chaos_cluster() -> DevCluster:
    """Two masters with a slave each that may be read, and two name servers."""
    return DevCluster(
        brokers=2, slaves=1, name_servers=2, broker_config={"slaveReadEnable": "true"}, start_timeout_s=300
    )


class _Disturber:
    """Each fault is made, lasts until some more messages have got through in spite of it, and is undone."""

    def __init__(self, cluster: DevCluster, client: Client, work: Workload) -> None:
        self._cluster = cluster
        self._client = client
        self._admin = Admin(client)
        self._work = work

    def prepare(self) -> None:
        """Wait until the first slave has the messages that are read from it, and knows their topic.

        Slaves copy their master's topics now and then only, and refuse to hand out what they have until then.
        """
        slave = self._client.connection(self._cluster.broker("broker-a-1").address)
        knows = Call(GetTopicConfigRequest(topic=TOPIC), lambda answer: answer.code == ResponseCode.SUCCESS)
        eventually(lambda: knows.on(slave, deadline=self._client.deadline()), 90, what="the slave's topic")
        has = max_offset(_FIRST.queue)
        eventually(
            lambda: has.on(slave, deadline=self._client.deadline()) >= len(_FIRST), 60, what="its messages"
        )

    def kinds(self, *, with_tools: bool) -> dict[str, Callable[[], None]]:
        """Return every kind; those that RocketMQ's own tool makes take long, for it takes long to start."""
        every = {
            "master killed (kill -9), started again": self._kill_master,
            "master paused for longer than the time-outs": self._pause_master,
            "master killed, its slave closed to readers": self._kill_master_of_closed_slave,
            "slave killed, started again": self._kill_slave,
            "name server killed, started again": self._kill_name_server,
            "both name servers killed, started again": self._kill_name_servers,
            "broker made read-only": self._read_only,
            "topic made read-only at a broker": self._topic_read_only,
            "broker sheds load (flow control)": self._shed_load,
            "topic grown by two queues (mqadmin)": self._grow,
            "topic's write queues lowered (mqadmin)": self._shrink,
            "whole cluster killed, started again": self._kill_all,
        }
        return {name: fault for name, fault in every.items() if with_tools or "mqadmin" not in name}

    def wait_for_more(self, messages: int = 500, timeout_s: float = 60) -> None:
        """Wait until more messages were acknowledged."""
        target = self._work.sent + messages
        eventually(lambda: self._work.sent >= target, timeout_s, what=f"{messages} more messages")

    def _kill_master(self) -> None:
        master = self._cluster.broker("broker-a")
        master.kill()
        self.wait_for_more()  # through the other master
        assert self._read_first() == len(_FIRST)  # from the slave
        master.start()

    def _kill_master_of_closed_slave(self) -> None:
        """Without ``slaveReadEnable``, RocketMQ's default, reading waits and then names the setting."""
        slave = self._cluster.broker("broker-a-1").address
        self._set(slave, "slaveReadEnable", "false")
        master = self._cluster.broker("broker-a")
        master.kill()
        with pytest.raises(BrokerNotFoundError, match="slaveReadEnable=true"):
            self._read_first(stall_timeout_ms=4_000)
        master.start()
        self._set(slave, "slaveReadEnable", "true")

    def _read_first(self, stall_timeout_ms: int = 60_000) -> int:
        options = ReadOptions(consumer_group="chaos", stall_timeout_ms=stall_timeout_ms)
        batches = read_batches(self._client, [_FIRST], options, DecodeOptions(columns=("body",)))
        return sum(batch.num_rows for batch in batches)

    def _set(self, address: str, name: str, value: str) -> None:
        change = encode_broker_properties({name: value})
        call = Call(UpdateBrokerConfigRequest(), lambda answer: answer.require(), change)
        call.on(self._client.connection(address), deadline=self._client.deadline())

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

    def _topic_read_only(self) -> None:
        for perm in (Permission.READ, Permission.READ | Permission.WRITE):
            self._admin.alter_topic(TOPIC, perm=perm, brokers=["broker-b"])
            self.wait_for_more()

    def _shed_load(self) -> None:
        """Every request that waits when a broker looks is refused with SYSTEM_BUSY."""
        patience = {"waitTimeMillsInSendQueue": "200", "waitTimeMillsInPullQueue": "5000"}
        self._admin.set_broker_config("broker-b", dict.fromkeys(patience, "0"))
        self.wait_for_more(2_000)
        self._admin.set_broker_config("broker-b", patience)

    def _queues(self) -> int:
        return len({q.queue_id for q in self._admin.topic_route(TOPIC).read_queues()})

    def _update_topic(self, *, read: int, write: int) -> None:
        """Have RocketMQ's own tool change the topic until every broker has the new size.

        It gives a broker 5 s, too little on a busy machine, and passes over one that is not registered.
        """
        sizes = ("-r", str(read), "-w", str(write))

        def done() -> bool:
            with contextlib.suppress(DevClusterError):
                self._cluster.mqadmin("updateTopic", "-c", "DefaultCluster", "-t", TOPIC, *sizes)
            return self._sizes() == [(read, write)] * 2

        eventually(done, 120, what=f"{read} queues to read and {write} to write")

    def _sizes(self) -> list[tuple[int, int]]:
        return [(data.read_queues, data.write_queues) for data in self._admin.topic_route(TOPIC).queues]

    def _grow(self) -> None:
        queues = self._queues()
        self._update_topic(read=queues + 1, write=queues + 1)

    def _shrink(self) -> None:
        """Lower the number of queues that are written; all are read, as RocketMQ's own guide says to do."""
        queues = self._queues()
        self._update_topic(read=queues, write=queues - 1)
        self.wait_for_more()
        self._update_topic(read=queues, write=queues)

    def _kill_all(self) -> None:
        servers = self._cluster.servers
        for server in reversed(servers):
            server.kill()
        for server in servers:
            server.launch()
        for server in servers:
            server.await_up()


def disturb_cluster(
    cluster: DevCluster,
    spark: SparkSession,
    folder: Path,
    *,
    rounds: int = 1,
    pace_s: float = 0.02,
    with_tools: bool = True,
) -> tuple[Figures, CopyFigures]:
    """Run a workload and a Spark stream on a real cluster and every kind of fault of its servers."""
    with Client(cluster.name_server) as client:
        for topic in (TOPIC, COPY):
            Admin(client).create_topic(topic, queues=2)
        work = Workload(cluster.name_server, TOPIC, pace_s=pace_s, read_stall_ms=120_000)
        copy = SparkCopy(spark, cluster.name_server, TOPIC, COPY, folder)
        disturber = _Disturber(cluster, client, work)
        try:
            with work.running():
                disturber.prepare()
                copy.start()
                for _ in range(rounds):
                    for kind, fault in disturber.kinds(with_tools=with_tools).items():
                        fault()
                        work.figures.faults[kind] += 1
                        disturber.wait_for_more()
                        copy.go_on()
            return work.figures, copy.finish(client)
        finally:
            copy.stop()
