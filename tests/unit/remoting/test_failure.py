"""Response codes and the errors that they become."""

from __future__ import annotations

import pickle

import pytest
from tests.simulation.edge_answers import answer

from pyspark_rocketmq.errors import (
    AuthenticationError,
    BrokerError,
    FlowControlError,
    GroupNotFoundError,
    MessageIllegalError,
    PermissionDeniedError,
    ServiceNotAvailableError,
    UnsupportedRequestError,
)
from pyspark_rocketmq.remoting.failure import error_for

_PULLS = "org.apache.rocketmq.broker.processor.PullMessageProcessor"
WRONG_TYPE = "TopicMessageType validate failed, the expected type is "


def test_what_is_forbidden_says_where_to_look():
    error = error_for(16, "the topic[orders] sending message is forbidden", topic="orders")
    for place in ("the topic's permission", "consumeEnable", "brokerPermission"):
        assert place in str(error)


@pytest.mark.parametrize(
    ("code", "remark", "cls"),
    [
        (1, None, BrokerError),
        (1, "java.lang.NullPointerException", BrokerError),
        (1, "cannot find addr for broker broker-a", ServiceNotAvailableError),
        (
            1,
            "org.apache.rocketmq.remoting.rpc.RpcException: cannot find addr for broker broker-a",
            ServiceNotAvailableError,
        ),
        (1, "wait response from 127.0.0.1:10911 timeout :30000ms. Request: …", ServiceNotAvailableError),
        (1, "org.apache.rocketmq.acl.common.AclException: No accessKey is configured", AuthenticationError),
        (1, answer("a group without members reads cold data")[1], FlowControlError),
        (
            1,
            f"java.lang.NullPointerException, {_PULLS}.processRequest(PullMessageProcessor.java:514)",
            FlowControlError,
        ),
        (2, "[TIMEOUT_CLEAN_QUEUE]broker busy", FlowControlError),
        (3, "request type 105 not supported", UnsupportedRequestError),
        (11, None, ServiceNotAvailableError),
        (13, "the message body size over max value", MessageIllegalError),
        (13, f"{WRONG_TYPE}NORMAL, but actual type is FIFO", MessageIllegalError),
        (13, f"{WRONG_TYPE}UNSPECIFIED, but actual type is NORMAL", ServiceNotAvailableError),
        (14, "service not available now", ServiceNotAvailableError),
        (15, "Request doesn't have field bname", UnsupportedRequestError),
        (16, "the broker[1.2.3.4] sending message is forbidden", PermissionDeniedError),
        (16, "subscription group no permission, g", PermissionDeniedError),
        (16, None, PermissionDeniedError),
        (16, "username cannot be null.", AuthenticationError),
        (16, "User:x is not found.", AuthenticationError),
        (16, "User:x not found.", AuthenticationError),
        (16, "User:x is disabled.", AuthenticationError),
        (16, "check signature failed.", AuthenticationError),
        (
            16,
            "u has no permission to access Topic:t from 127.0.0.1, no matched policies.",
            AuthenticationError,
        ),
        (17, "topic[t] not exist", ServiceNotAvailableError),
        (22, "Not found", BrokerError),
        (23, "parse the consumer's subscription failed", BrokerError),
        (26, "subscription group [g] does not exist", GroupNotFoundError),
        (29, "request queueId[9] is illegal", BrokerError),
        (215, None, FlowControlError),
        (501, None, ServiceNotAvailableError),
        (1500, None, ServiceNotAvailableError),
        (4711, "later", BrokerError),
        (-1006, None, BrokerError),
    ],
)
def test_class(code: int, remark: str | None, cls: type[BrokerError]) -> None:
    error = error_for(code, remark, topic="t")
    assert type(error) is cls
    assert error.code == code
    assert error.remark == remark
    assert error.facts["topic"] == "t"


@pytest.mark.parametrize("code", [2, 215])
def test_a_busy_server_may_be_asked_again(code: int) -> None:
    error = error_for(code, None)
    assert (error.retriable, error.stale_route) == (True, False)


@pytest.mark.parametrize("code", [11, 14, 17, 501, 1500])
def test_another_server_may_do(code: int) -> None:
    error = error_for(code, None)
    assert (error.retriable, error.stale_route) == (True, True)


@pytest.mark.parametrize("code", [1, 3, 13, 15, 16, 22, 23, 26, 29, 4711])
def test_again_would_not_help(code: int) -> None:
    assert not error_for(code, None).retriable


def test_text_names_the_code_and_what_the_server_said() -> None:
    text = str(error_for(26, "no such group", addr="127.0.0.1:10911"))
    assert "SUBSCRIPTION_GROUP_NOT_EXIST" in text
    assert "code=26" in text
    assert "no such group" in text
    assert "127.0.0.1:10911" in text


def test_a_stack_trace_is_cut() -> None:
    assert error_for(1, "x" * 100_000).remark == "x" * 2_000 + "…"
    assert error_for(1, "x" * 2_000).remark == "x" * 2_000


def test_pickles() -> None:
    error = error_for(16, "check signature failed.", topic="t")
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error)
    assert (str(twin), twin.code, twin.remark) == (str(error), error.code, error.remark)


def test_a_message_of_another_type_says_which_topic_takes_it() -> None:
    error = error_for(13, f"{WRONG_TYPE}NORMAL, but actual type is FIFO", topic="orders")
    assert "the topic takes NORMAL messages and this one is FIFO" in str(error)
    assert "message.type to MIXED, where brokers have enableMixedMessageType, or FIFO" in str(error)
