"""Signed requests against a broker that checks them, and the errors of those that it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.patient import patient_producer
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, ClientOptions, CommittedConsumer, OutgoingMessage
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import AuthenticationError
from pyspark_rocketmq.remoting import body as bodies
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.remoting.command import Serializer
from pyspark_rocketmq.remoting.header import (
    CreateAclRequest,
    CreateTopicRequest,
    CreateUserRequest,
    DeleteUserRequest,
    GetMaxOffsetRequest,
    RequestHeader,
    SendMessageRequest,
)

pytestmark = pytest.mark.needs("cluster")

ROOT = Credentials("rocketmq", "12345678")
READER = Credentials("reader", "größe-secret")
AUTHENTICATION = "org.apache.rocketmq.auth.authentication.provider"
AUTHORIZATION = "org.apache.rocketmq.auth.authorization.provider"
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationProvider": f"{AUTHENTICATION}.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{AUTHENTICATION}.LocalAuthenticationMetadataProvider",
    "authorizationProvider": f"{AUTHORIZATION}.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{AUTHORIZATION}.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": '{"username":"rocketmq","password":"12345678"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"rocketmq","secretKey":"12345678"}',
}
MAX_OFFSET = GetMaxOffsetRequest(topic="orders", queue_id=0, broker_name="broker-a")
SEND = SendMessageRequest(
    producer_group="p", topic="orders", queue_id=0, born_timestamp=1, broker_name="broker-a"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    with DevCluster(broker_config=SETTINGS, connection=ConnectionOptions(credentials=ROOT)) as found:
        yield found


@pytest.fixture(scope="module")
def address(cluster: DevCluster) -> str:
    """A broker with two accounts: the first may do all, the second may read the topic."""
    found = cluster.brokers[0].address
    call(found, ROOT, CreateTopicRequest(topic="orders", read_queue_nums=1, write_queue_nums=1, perm=6))
    create_user(found, READER, "Topic:orders", "Group:*")
    return found


def create_user(addr: str, user: Credentials, *readable: str) -> None:
    name, subject = user.access_key, f"User:{user.access_key}"
    call(addr, ROOT, CreateUserRequest(username=name), bodies.encode_user(name, user.secret_key))
    acl = bodies.encode_acl(subject, readable, ["Sub", "Get"])
    call(addr, ROOT, CreateAclRequest(subject=subject), acl)


def call(
    addr: str,
    credentials: Credentials | None,
    request: RequestHeader,
    body: bytes = b"",
    serializer: Serializer = Serializer.JSON,
) -> None:
    options = ConnectionOptions(credentials=credentials, serializer=serializer)
    connection = Connection(addr, options)
    try:
        connection.call(request, body, deadline=Deadline(SYSTEM_CLOCK, 20_000)).require()
    finally:
        connection.close()


@pytest.mark.parametrize("serializer", Serializer)
def test_signed_requests_are_served(address: str, serializer: Serializer) -> None:
    call(address, READER, MAX_OFFSET, serializer=serializer)
    call(address, ROOT, SEND, "größe".encode(), serializer=serializer)
    # The broker knows no tokens, but what it signs for comparison has the token in it.
    call(address, replace(READER, security_token="a token"), MAX_OFFSET, serializer=serializer)


@pytest.mark.parametrize(
    ("credentials", "request_header"),
    [
        pytest.param(None, MAX_OFFSET, id="no account"),
        pytest.param(Credentials("nobody", "x"), MAX_OFFSET, id="unknown account"),
        pytest.param(Credentials("reader", "wrong"), MAX_OFFSET, id="wrong secret"),
        pytest.param(READER, SEND, id="no right to send"),
        pytest.param(READER, DeleteUserRequest(username="reader"), id="no right to administer"),
    ],
)
def test_refused_accounts(
    address: str, credentials: Credentials | None, request_header: RequestHeader
) -> None:
    with pytest.raises(AuthenticationError) as caught:
        call(address, credentials, request_header, b"x")
    assert "größe-secret" not in str(caught.value)


def test_what_a_reader_of_committed_ranges_needs(cluster: DevCluster, address: str) -> None:
    """As the table in docs/source.md says: the tools' group, too."""
    topics = "Topic:paid", "Topic:paid-commits"
    create_user(address, Credentials("without", "x-secret"), *topics)
    create_user(address, Credentials("with", "x-secret"), *topics, "Group:TOOLS_CONSUMER")
    with Client(account(cluster, ROOT)) as client:
        for topic in ("paid", "paid-commits"):
            Admin(client).create_topic(topic, queues=1)
        patient_producer(client).send(OutgoingMessage("paid", b"x"))
    with (
        CommittedConsumer("paid", account(cluster, Credentials("without", "x-secret"))) as refused,
        pytest.raises(AuthenticationError, match="Group:TOOLS_CONSUMER"),
    ):
        eventually(refused.read, what="a message")
    with CommittedConsumer("paid", account(cluster, Credentials("with", "x-secret"))) as consumer:
        assert [message.body for message in eventually(consumer.read, what="a message")] == [b"x"]


def account(cluster: DevCluster, user: Credentials) -> ClientOptions:
    return ClientOptions(
        name_servers=(cluster.name_server,), access_key=user.access_key, secret_key=user.secret_key
    )
