"""TLS with a real name server and broker: verified by default, and the broker takes nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.certificates import Authority
from tests.support.patient import patient_producer
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, ClientOptions, OffsetRange, OutgoingMessage
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions, TlsOptions
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster, JvmOptions
from pyspark_rocketmq.errors import ConnectionLostError, NameServerError
from pyspark_rocketmq.remoting.header import GetBrokerRuntimeInfoRequest

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secure(authority: Authority) -> Iterator[DevCluster]:
    """The broker enforces TLS; the name server, which the broker itself reaches plainly, permits it."""
    server = authority.issue("server")
    keys = (
        "-Dtls.test.mode.enable=false",
        f"-Dtls.server.keyPath={server.key}",
        f"-Dtls.server.certPath={server.cert}",
    )
    with DevCluster(
        name_server_options=JvmOptions(heap="256m", jvm_args=keys),
        broker_options=JvmOptions(heap="512m", jvm_args=(*keys, "-Dtls.server.mode=enforcing")),
        connection=ConnectionOptions(tls=TlsOptions(ca_file=str(authority.root.cert))),
    ) as cluster:
        yield cluster


def options(cluster: DevCluster, **more: object) -> ClientOptions:
    return ClientOptions(name_servers=(cluster.name_server,), tls=True, connect_timeout_ms=3_000, **more)


def test_everything_over_tls(secure: DevCluster, authority: Authority) -> None:
    with Client(options(secure, tls_ca_file=str(authority.root.cert))) as client:
        Admin(client).create_topic("secure", queues=1)
        (queue,) = client.write_queues("secure")
        bodies = [b"%d" % number * 3_000 for number in range(300)]
        for start in range(0, 300, 50):
            patient_producer(client).send_batch(
                [OutgoingMessage("secure", body) for body in bodies[start : start + 50]], queue
            )
        eventually(lambda: client.max_offsets((queue,))[queue] == 300)
        batches = read_batches(
            client,
            [OffsetRange(queue, 0, 300)],
            ReadOptions(consumer_group="g"),
            DecodeOptions(columns=("body",), check_crc=True),
        )
        assert [body for batch in batches for body in batch.column(0).to_pylist()] == bodies
        client.commit_offsets("g", {queue: 300})
        assert client.committed_offsets("g", (queue,)) == {queue: 300}


def test_a_certificate_of_an_unknown_authority_is_refused(secure: DevCluster, tmp_path: Path) -> None:
    for trust in ({}, {"tls_ca_file": str(Authority.create(tmp_path, "other").root.cert)}):
        with (
            Client(options(secure, **trust)) as client,
            pytest.raises(NameServerError, match="certificate verify failed"),
        ):
            client.read_queues("secure")


def test_the_broker_refuses_what_is_not_encrypted(secure: DevCluster) -> None:
    connection = Connection(secure.broker().address, ConnectionOptions())
    with pytest.raises(ConnectionLostError):
        connection.call(GetBrokerRuntimeInfoRequest())
    connection.close()
