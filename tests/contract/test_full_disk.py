"""A broker whose disk is full stores nothing. What it deletes to have room again is told as a loss."""

from __future__ import annotations

import random
import re
import shlex
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.simulation.edge_answers import answer
from tests.support.light_cluster import LIGHT_JVM
from tests.support.patient import patient_producer
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, OutgoingMessage, Producer, ProducerOptions
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.devcluster.java import Java, find_java
from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.header import SendMessageRequest

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(300)]

DISK_MIB = 48
_SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "timerWheelEnable": "false",
    "cleanResourceInterval": "500",  # the first time is after a minute
    "deleteCommitLogFilesInterval": "10",
    "diskSpaceWarningLevelRatio": "60",
    "diskSpaceCleanForciblyRatio": "60",
}
BODY_BYTES = 60_000


def java_with_a_small_disk(folder: Path, disk: Path) -> Java:
    """Return a Java that sees a disk of its own at ``disk``: a file system in memory, until it ends."""
    assert shutil.which("unshare"), "needs unshare, of util-linux, and the right to create namespaces"
    java = find_java()
    mount = shlex.join(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "small", str(disk)])
    start = shlex.quote(f'{mount} && exec {shlex.quote(str(java.executable))} "$@"')
    program = folder / "java"
    program.write_text(f'#!/bin/sh\nexec unshare --map-root-user --mount sh -c {start} sh "$@"\n')
    program.chmod(0o755)
    return Java(program, java.version)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    disk = tmp_path / "disk"
    disk.mkdir()
    store = {"storePathRootDir": str(disk), "storePathCommitLog": str(disk / "commitlog")}
    cluster = DevCluster(
        java=java_with_a_small_disk(tmp_path, disk),
        broker_config=_SETTINGS | store,
        broker_options=LIGHT_JVM,
    )
    with cluster, Client(cluster.name_server) as client:
        yield client


@pytest.fixture
def queue(client: Client) -> MessageQueue:
    Admin(client).create_topic("full", queues=1)
    eventually(lambda: client.write_queues("full"), 30)
    (queue,) = client.write_queues("full")
    return queue


def body(number: int) -> bytes:
    return random.Random(number).randbytes(BODY_BYTES)  # nothing that compresses


def without_numbers(remark: str | None) -> str:
    return re.sub(r"\d\.\d+", "0", remark or "")


def send(client: Client, queue: MessageQueue) -> Response:
    request = SendMessageRequest(
        producer_group="full",
        topic=queue.topic,
        queue_id=queue.queue_id,
        born_timestamp=1_700_000_000_000,
        broker_name=queue.broker_name,
    )
    connection = client.connection(client.queue_address(queue))
    return connection.call(request, b"refused", deadline=client.deadline(30_000))


def test_a_full_disk_takes_nothing_until_files_are_deleted(client: Client, queue: MessageQueue) -> None:
    filling = int(0.7 * DISK_MIB * (1 << 20) / BODY_BYTES)
    for number in range(filling):
        patient_producer(client).send(OutgoingMessage("full", body(number)), queue)
    refusals = list[Response]()

    def is_full() -> bool:
        refusals.append(send(client, queue))
        return refusals[-1].code != ResponseCode.SUCCESS

    eventually(is_full, 120)
    code, remark = answer("a disk is full")
    assert (refusals[-1].code, without_numbers(refusals[-1].remark)) == (code, without_numbers(remark))
    early = len(refusals) - 1
    stored = filling + early
    eventually(lambda: client.max_offsets([queue])[queue] == stored, 10)

    patient = Producer(client, options=ProducerOptions(send_timeout_ms=120_000, retries=10_000))
    sender = threading.Thread(target=lambda: patient.send(OutgoingMessage("full", b"late"), queue))
    sender.start()
    ranges = [OffsetRange(queue, 0, filling)]
    found = read_messages(client, ranges, ReadOptions(consumer_group="full"))
    assert [message.body for message in found] == [body(number) for number in range(filling)]

    Admin(client).set_broker_config("broker-a", {"cleanFileForciblyEnable": "true"})
    sender.join(120)
    assert not sender.is_alive()
    assert client.max_offsets([queue])[queue] == stored + 1
    eventually(lambda: client.min_offsets([queue])[queue] > 0, 30)
    with pytest.raises(DataLossError):
        list(read_messages(client, ranges, ReadOptions(consumer_group="full")))
    kept = OffsetRange(queue, client.min_offsets([queue])[queue], stored + 1)
    *_, last = read_messages(client, [kept], ReadOptions(consumer_group="full"))
    assert last.body == b"late"
