"""Fresh topics and groups, named after the test that uses them."""

from __future__ import annotations

import itertools
import re
import secrets
import socket
from typing import Protocol

from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.frame import decode_frame, encode_frame, frame_length

_numbers = itertools.count()
_run = secrets.token_hex(3)


class TopicFactory(Protocol):
    """Creates a fresh topic and returns its name."""

    def __call__(self, queues: int = 4, *, cluster: DevCluster | None = None, perm: int = 6) -> str: ...


def fresh_name(test_name: str) -> str:
    """Return a name that no other test, and no other run, uses; at most 60 characters."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", test_name).strip("_")[:44]
    return f"{plain}-{_run}-{next(_numbers)}"


def create_topic(cluster: DevCluster, topic: str, queues: int, perm: int) -> None:
    """Create a topic on every master of the cluster; its route is there when this returns."""
    for broker in cluster.brokers:
        if broker.broker_id == 0:
            _create_on(broker.address, topic, queues, perm)


def _create_on(address: str, topic: str, queues: int, perm: int) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": str(perm),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(encode_frame(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, 1, fields=fields)))
        received = b""
        while (size := frame_length(received, 0, len(received))) is None or len(received) < size:
            data = connection.recv(65536)
            assert data, f"{address} closed the connection"
            received += data
    answer = decode_frame(memoryview(received)).command
    assert answer.code == ResponseCode.SUCCESS, f"cannot create {topic}: {answer.code} {answer.remark}"
