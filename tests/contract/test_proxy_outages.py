"""Reading through real proxies that end and return, and over TLS."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.certificates import Authority
from tests.support.patient import PATIENCE_MS, patient_producer
from tests.support.topics import TopicFactory
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, ClientOptions, OutgoingMessage, SendPipeline, encode_many
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster, JvmOptions
from pyspark_rocketmq.errors import NameServerError
from pyspark_rocketmq.model import MessageQueue, OffsetRange

pytestmark = pytest.mark.needs("cluster")

COUNT = 2_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def cluster(authority: Authority) -> Iterator[DevCluster]:
    """A broker behind two proxies, which permit TLS."""
    server = authority.issue("server")
    keys = {"tlsKeyPath": str(server.key), "tlsCertPath": str(server.cert)}
    with DevCluster(
        proxies=2,
        proxy_config={"tlsTestModeEnable": "false", **keys},
        broker_options=JvmOptions(heap="512m"),
    ) as cluster:
        yield cluster


@pytest.fixture
def filled(cluster: DevCluster, topic: TopicFactory) -> dict[MessageQueue, int]:
    """The max offsets of a topic that has messages."""
    name = topic(queues=1, cluster=cluster)
    with Client(cluster.name_server) as client:
        producer = patient_producer(client)
        for start in range(0, COUNT, 500):
            bodies = [b"%d" % number for number in range(start, start + 500)]
            producer.send_batch([OutgoingMessage(name, body) for body in bodies])
        queues = client.read_queues(name)
        eventually(lambda: sum(client.max_offsets(queues).values()) == COUNT, 30, what="all messages")
        return client.max_offsets(queues)


def bodies(client: Client, ends: dict[MessageQueue, int]) -> Iterator[list[bytes]]:
    """Read a pull's messages at a time."""
    options = ReadOptions(consumer_group="g", pulls_in_flight=1)
    ranges = [OffsetRange(queue, 0, end) for queue, end in ends.items()]
    for batch in read_batches(client, ranges, options, DecodeOptions(columns=("body",), max_batch_rows=32)):
        if isinstance(batch, pa.RecordBatch):
            yield batch.column(0).to_pylist()


def is_complete(found: list[bytes]) -> bool:
    return found == [b"%d" % number for number in range(COUNT)]


def test_a_read_continues_at_another_proxy(cluster: DevCluster, filled: dict[MessageQueue, int]) -> None:
    with Client(cluster.proxy) as client:
        for gone in cluster.proxies:  # the one in use is among them
            reading = bodies(client, filled)
            found = next(reading)
            gone.kill()
            found += [body for part in reading for body in part]
            gone.start()
            assert is_complete(found)


def test_a_read_waits_for_a_proxy_that_restarts(cluster: DevCluster, filled: dict[MessageQueue, int]) -> None:
    (proxy, _) = cluster.proxies
    with Client(proxy.address) as client, ThreadPoolExecutor(1) as threads:
        reading = bodies(client, filled)
        found = next(reading)
        proxy.kill()
        started = threads.submit(proxy.start)
        found += [body for part in reading for body in part]
        started.result()
    assert is_complete(found)


def test_tls_to_a_proxy(cluster: DevCluster, filled: dict[MessageQueue, int], authority: Authority) -> None:
    def options(ca_file: Path) -> ClientOptions:
        names = tuple(cluster.proxy.split(";"))
        return ClientOptions(
            name_servers=names, tls=True, tls_ca_file=str(ca_file), connect_timeout_ms=PATIENCE_MS
        )

    (queue, end), *_ = filled.items()
    with Client(options(authority.root.cert)) as client:
        assert is_complete([body for part in bodies(client, filled) for body in part])
        producer = patient_producer(client)
        with SendPipeline(producer) as pipeline:
            more = encode_many([OutgoingMessage(queue.topic, b"more")] * 10, producer.ids)
            outcomes = [*pipeline.submit(more, queue), *pipeline.flush()]
        assert [outcome.error for outcome in outcomes] == [None]
        eventually(lambda: client.max_offsets([queue]) == {queue: end + 10}, 30, what="the sent messages")
        client.commit_offsets("g", {queue: end})
        eventually(lambda: client.committed_offsets("g", [queue]) == {queue: end}, 30)
    other = Authority.create(authority.home, "other")
    with (
        Client(options(other.root.cert)) as client,
        pytest.raises(NameServerError, match="certificate verify failed"),
    ):
        client.read_queues(queue.topic)
