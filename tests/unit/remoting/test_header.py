"""Declared headers: names on the wire, text forms, and what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyspark_rocketmq.errors import LocalProtocolError, RemoteProtocolError
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.header import (
    REQUESTS,
    CreateTopicRequest,
    EndTransactionRequest,
    GetBrokerClusterInfoRequest,
    GetMinOffsetRequest,
    GetRouteInfoRequest,
    HeaderField,
    OffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueryConsumerOffsetRequest,
    RequestHeader,
    ResetOffsetRequest,
    SearchOffsetRequest,
    SendBatchMessageRequest,
    SendMessageRequest,
    SendMessageResponse,
    UnregisterClientRequest,
)
from pyspark_rocketmq.remoting.header.base import header, wire
from pyspark_rocketmq.remoting.namespace import Namespace

SEND: dict[str, Any] = {
    "producer_group": "g",
    "topic": "t",
    "queue_id": 2,
    "sys_flag": 769,
    "born_timestamp": 1700000000000,
    "properties": "TAGS\x01a\x02",
    "broker_name": "broker-a",
}


@pytest.mark.parametrize(
    ("request_header", "code", "fields"),
    [
        pytest.param(
            GetRouteInfoRequest(topic="t"),
            105,
            {"topic": "t", "acceptStandardJsonOnly": "true"},
            id="route",
        ),
        pytest.param(GetBrokerClusterInfoRequest(), 106, {}, id="no fields"),
        pytest.param(
            PullMessageRequest(
                consumer_group="g",
                topic="t",
                queue_id=1,
                queue_offset=10,
                max_msg_nums=1024,
                sys_flag=4,
                subscription="*",
                expression_type="TAG",
                broker_name="broker-a",
            ),
            11,
            {
                "consumerGroup": "g",
                "topic": "t",
                "queueId": "1",
                "queueOffset": "10",
                "maxMsgNums": "1024",
                "sysFlag": "4",
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
                "subscription": "*",
                "subVersion": "0",
                "expressionType": "TAG",
                "bname": "broker-a",
            },
            id="pull",
        ),
        pytest.param(
            SendMessageRequest(**SEND),
            310,
            {
                "a": "g",
                "b": "t",
                "c": "TBW102",
                "d": "4",
                "e": "2",
                "f": "769",
                "g": "1700000000000",
                "h": "0",
                "i": "TAGS\x01a\x02",
                "j": "0",
                "k": "false",
                "m": "false",
                "n": "broker-a",
            },
            id="send",
        ),
        pytest.param(
            SearchOffsetRequest(topic="t", queue_id=0, timestamp=5, broker_name="b"),
            29,
            {"topic": "t", "queueId": "0", "timestamp": "5", "boundaryType": "lower", "bname": "b"},
            id="search",
        ),
        pytest.param(
            QueryConsumerOffsetRequest(consumer_group="g", topic="t", queue_id=0, broker_name="b"),
            14,
            {"consumerGroup": "g", "topic": "t", "queueId": "0", "setZeroIfNotFound": "false", "bname": "b"},
            id="query offset",
        ),
        pytest.param(
            ResetOffsetRequest(group="g", topic="t", timestamp=-1),
            222,
            {"group": "g", "topic": "t", "timestamp": "-1", "isForce": "true", "queueId": "-1"},
            id="reset",
        ),
        pytest.param(
            CreateTopicRequest(topic="t", read_queue_nums=4, write_queue_nums=8, perm=6),
            17,
            {
                "topic": "t",
                "defaultTopic": "TBW102",
                "readQueueNums": "4",
                "writeQueueNums": "8",
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
            },
            id="create topic",
        ),
        pytest.param(
            EndTransactionRequest(
                producer_group="g",
                tran_state_table_offset=1,
                commit_log_offset=2,
                commit_or_rollback=8,
                msg_id="m",
                broker_name="b",
            ),
            37,
            {
                "producerGroup": "g",
                "tranStateTableOffset": "1",
                "commitLogOffset": "2",
                "commitOrRollback": "8",
                "fromTransactionCheck": "false",
                "msgId": "m",
                "bname": "b",
            },
            id="end transaction",
        ),
        pytest.param(UnregisterClientRequest(client_id="c"), 35, {"clientID": "c"}, id="capital ID"),
    ],
)
def test_fields_on_the_wire(request_header: RequestHeader, code: int, fields: dict[str, str]) -> None:
    assert code == request_header.CODE
    assert request_header.fields() == fields
    assert type(request_header).parse(fields) == request_header


def test_batch_differs_from_a_send_in_code_and_batch_and_names_its_broker_for_old_proxies_too() -> None:
    batch = SendBatchMessageRequest(**SEND)
    assert batch.CODE == 320
    assert batch.fields() == {
        **SendMessageRequest(**SEND).fields(),
        "m": "true",
        "bname": SEND["broker_name"],
    }


def test_every_request_code_has_its_header() -> None:
    assert set(REQUESTS) == set(RequestCode)
    assert all(request.CODE is code for code, request in REQUESTS.items())


def test_a_proxy_gets_the_broker_name_with_every_request_that_it_routes() -> None:
    routed = {11, 14, 15, 29, 30, 31, 36, 37, 310, 320, 370}
    for code in routed:
        names = {field.wire for field in REQUESTS[RequestCode(code)].FIELDS if field.required}
        assert names & {"bname", "n"}, code


def test_declaration_can_be_read() -> None:
    assert (HeaderField("offset", "offset", int, required=True),) == OffsetResponse.FIELDS
    assert HeaderField("client_id", "clientID", str, required=True) in UnregisterClientRequest.FIELDS
    assert HeaderField("msg_id", "msgId", str, required=True) in SendMessageResponse.FIELDS


def test_answer_to_a_pull() -> None:
    fields = {"nextBeginOffset": "32", "minOffset": "0", "maxOffset": "9223372036854775807", "future": "x"}
    assert PullMessageResponse.parse(fields) == PullMessageResponse(
        next_begin_offset=32, min_offset=0, max_offset=2**63 - 1
    )


@pytest.mark.parametrize("text", ["", "x", "1.0", "9223372036854775808", "-9223372036854775809", "9" * 5000])
def test_field_of_another_type_is_the_peers_error(text: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        OffsetResponse.parse({"offset": text})
    assert caught.value.facts["field"] == "offset"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [-(2**63), -1, 0, 2**63 - 1])
def test_numbers_have_64_bits(value: int) -> None:
    assert OffsetResponse.parse({"offset": str(value)}).offset == value


def test_missing_field_is_the_peers_error() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        OffsetResponse.parse({})
    assert caught.value.facts == {"header": "OffsetResponse", "field": "offset"}


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("false", False)])
def test_booleans(text: str, value: bool) -> None:
    assert GetRouteInfoRequest.parse(
        {"topic": "t", "acceptStandardJsonOnly": text}
    ).accept_standard_json_only is (value)
    with pytest.raises(RemoteProtocolError):
        GetRouteInfoRequest.parse({"topic": "t", "acceptStandardJsonOnly": "yes"})


@pytest.mark.parametrize("wrong", [{"queue_id": "1"}, {"topic": 1}, {"unit_mode": "true"}, {"sys_flag": 1.5}])
def test_value_of_another_type_is_our_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        SendMessageRequest(**{**SEND, **wrong}).fields()


def test_a_declared_header_has_names_types_copies_and_resources() -> None:
    @header
    class Several(RequestHeader):
        consumer_group: str
        broker_name: str = wire("bname", also="brokerName")
        lite_mode: bool = wire("l", default=False)
        max_reconsume_times: int | None = None
        topic: str | None = None

    assert (
        HeaderField("consumer_group", "consumerGroup", str, required=True),
        HeaderField("broker_name", "bname", str, required=True, also="brokerName"),
        HeaderField("lite_mode", "l", bool, required=False),
        HeaderField("max_reconsume_times", "maxReconsumeTimes", int, required=False),
        HeaderField("topic", "topic", str, required=False),
    ) == Several.FIELDS
    given = Several(consumer_group="g", broker_name="b", max_reconsume_times=3)
    fields = {"consumerGroup": "g", "bname": "b", "l": "false", "maxReconsumeTimes": "3", "brokerName": "b"}
    assert given.fields() == fields
    assert given.fields(Namespace("ns")) == fields | {"consumerGroup": "ns%g"}
    assert Several.parse(fields) == given
    assert Several.parse({"consumerGroup": "g", "bname": "b", "l": "true"}).lite_mode is True


def test_a_declared_header_may_have_one_field_or_none() -> None:
    @header
    class One(RequestHeader):
        queue_offset: int

    @header
    class Empty(RequestHeader):
        pass

    assert One(queue_offset=7).fields(Namespace("ns")) == {"queueOffset": "7"}
    assert One.parse({"queueOffset": "7"}) == One(queue_offset=7)
    assert (Empty().fields(), Empty.parse({"more": "x"})) == ({}, Empty())


def test_fields_are_scalars() -> None:
    with pytest.raises(TypeError, match="cannot be"):

        @header
        class Bad(RequestHeader):
            items: list[str]


def test_numbers_of_numpy_are_numbers() -> None:
    def ask(queue_id: Any, timestamp: Any) -> dict[str, str]:
        return SearchOffsetRequest(
            topic="t", queue_id=queue_id, timestamp=timestamp, broker_name="broker-a"
        ).fields()

    assert ask(np.int32(1), np.int64(1700000000000)) == ask(1, 1700000000000)


@pytest.mark.parametrize("value", [1.0, "1", np.float64(1)])
def test_a_value_of_another_type_is_named(value: Any) -> None:
    with pytest.raises(LocalProtocolError, match="of another type than declared") as caught:
        SearchOffsetRequest(topic="t", queue_id=1, timestamp=value, broker_name="broker-a").fields()
    assert caught.value.facts == {"header": "SearchOffsetRequest", "timestamp": value}


@pytest.mark.parametrize("given", [{"topic": None}, {"queue_id": None}])
def test_a_required_value_that_is_missing_is_not_left_to_the_peer(given: dict[str, Any]) -> None:
    values: dict[str, Any] = {"topic": "t", "queue_id": 1, "broker_name": "broker-a", **given}
    with pytest.raises(LocalProtocolError, match=f"{min(given)} must be a .*, not None"):
        GetMinOffsetRequest(**values).fields()
