"""Reading through Spark from brokers that check who asks, and that take nothing but TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.support.certificates import Authority
from tests.support.topics import fill

from pyspark_rocketmq import lag
from pyspark_rocketmq.client import Admin, Client, ClientOptions
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions, TlsOptions
from pyspark_rocketmq.devcluster import DevCluster, JvmOptions
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.remoting.body import encode_user
from pyspark_rocketmq.remoting.header import CreateUserRequest
from pyspark_rocketmq.spark import RocketMQQueryListener

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(300)]

ROOT = Credentials("rocketmq", "12345678")
SECRET = "planted-Secret-4711"
READER = {"accessKey": "spark-reader", "secretKey": SECRET}
AUTHENTICATION = "org.apache.rocketmq.auth.authentication.provider"
ACL_2 = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{AUTHENTICATION}.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{AUTHENTICATION}.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": '{"username":"rocketmq","password":"12345678"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"rocketmq","secretKey":"12345678"}',
}
ACL_1 = f"""
accounts:
- accessKey: rocketmq
  secretKey: "12345678"
  admin: true
- accessKey: spark-reader
  secretKey: {SECRET}
  admin: false
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("tls"))


def create_orders(client: Client) -> None:
    Admin(client).create_topic("orders", queues=2)
    fill(client, "orders", [b"%d" % n for n in range(10) for _ in range(2)])


@pytest.fixture(scope="module")
def strict(authority: Authority) -> Iterator[DevCluster]:
    """A 5.4 broker with ACL 2.0 that enforces TLS."""
    server = authority.issue("server")
    keys = (
        "-Dtls.test.mode.enable=false",
        f"-Dtls.server.keyPath={server.key}",
        f"-Dtls.server.certPath={server.cert}",
    )
    ca = str(authority.root.cert)
    with DevCluster(
        broker_config=ACL_2,
        name_server_options=JvmOptions(heap="256m", jvm_args=keys),
        broker_options=JvmOptions(heap="512m", jvm_args=(*keys, "-Dtls.server.mode=enforcing")),
        connection=ConnectionOptions(credentials=ROOT, tls=TlsOptions(ca_file=ca)),
    ) as cluster:
        names = (cluster.name_server,)
        keys_of_root = {"access_key": ROOT.access_key, "secret_key": ROOT.secret_key}
        with Client(ClientOptions(name_servers=names, tls=True, tls_ca_file=ca, **keys_of_root)) as client:
            create_orders(client)
            user = encode_user(READER["accessKey"], SECRET)
            broker = client.connection(cluster.brokers[0].address)
            create = CreateUserRequest(username=READER["accessKey"])
            broker.call(create, user, deadline=client.deadline()).require()
        yield cluster


@pytest.fixture(scope="module")
def old() -> Iterator[DevCluster]:
    """A 4.9 broker with ACL 1.0."""
    with DevCluster(
        version="4.9.7",
        broker_config={"aclEnable": "true"},
        broker_options=JvmOptions(heap="512m", files={"conf/plain_acl.yml": ACL_1}),
        connection=ConnectionOptions(credentials=ROOT),
    ) as cluster:
        keys_of_root = {"access_key": ROOT.access_key, "secret_key": ROOT.secret_key}
        with Client(ClientOptions(name_servers=(cluster.name_server,), **keys_of_root)) as client:
            create_orders(client)
        yield cluster


def count(spark: SparkSession, cluster: DevCluster, **options: str) -> int:
    return (
        spark.read.format("rocketmq")
        .options(nameServer=cluster.name_server, topic="orders", connectTimeoutMs=3_000, **options)
        .load()
        .count()
    )


def test_acl_2_over_enforced_tls(
    spark: SparkSession, strict: DevCluster, authority: Authority, tmp_path: Path
) -> None:
    tls = {"tls": "true", "tlsCaFile": str(authority.root.cert)}
    assert count(spark, strict, **READER, **tls) == 20
    with pytest.raises(PySparkException) as caught:
        count(spark, strict, **READER | {"secretKey": "x" + SECRET}, **tls)
    assert "AuthenticationError" in str(caught.value)
    assert SECRET not in str(caught.value)
    with pytest.raises(PySparkException, match="AuthenticationError"):
        count(spark, strict, **tls)
    with pytest.raises(PySparkException, match="certificate verify failed"):
        count(spark, strict, **READER, tls="true")

    listener = RocketMQQueryListener(**READER, **tls)
    spark.streams.addListener(listener)
    try:
        query = (
            spark.readStream.format("rocketmq")
            .options(nameServer=strict.name_server, topic="orders", consumerGroup="spark", **READER, **tls)
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)
        assert sum(progress.numInputRows for progress in query.recentProgress) == 20
        assert lag(strict.name_server, "spark", "orders", **READER, **tls).messages == 0
    finally:
        spark.streams.removeListener(listener)
        listener.close()


def test_acl_1_of_4_9(spark: SparkSession, old: DevCluster, tmp_path: Path) -> None:
    assert count(spark, old, **READER) == 20
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{name}={value}\n" for name, value in READER.items()))
    keys.chmod(0o600)
    assert count(spark, old, credentialsFile=str(keys)) == 20
    assert count(spark, old, **READER, securityToken="signed like any field") == 20
    with pytest.raises(PySparkException) as caught:
        count(spark, old, **READER | {"secretKey": "x" + SECRET})
    assert "AuthenticationError" in str(caught.value)
    assert SECRET not in str(caught.value)
    with pytest.raises(PySparkException, match="AuthenticationError"):
        count(spark, old)
