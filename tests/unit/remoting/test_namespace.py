from __future__ import annotations

import pytest

from pyspark_rocketmq.remoting.header import (
    ConsumerSendMsgBackRequest,
    GetRouteInfoRequest,
    PullMessageRequest,
    SendMessageRequest,
    UnregisterClientRequest,
)
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace
from pyspark_rocketmq.remoting.template import RequestTemplate

NS = Namespace("ns")


@pytest.mark.parametrize(
    ("plain", "on_server"),
    [
        ("orders", "ns%orders"),
        ("%RETRY%report", "%RETRY%ns%report"),
        ("%DLQ%report", "%DLQ%ns%report"),
        ("nsx", "ns%nsx"),
    ],
)
def test_names_go_there_and_back(plain: str, on_server: str):
    assert NS.qualify(plain) == on_server
    assert NS.qualify(on_server) == on_server
    assert NS.plain(on_server) == plain
    assert NS.holds(on_server)
    assert not NS.holds(plain)
    assert NO_NAMESPACE.qualify(plain) == NO_NAMESPACE.plain(plain) == plain


@pytest.mark.parametrize("name", ["TBW102", "TOOLS_CONSUMER", "rmq_sys_wheel_timer", "CID_RMQ_SYS_TRANS"])
def test_the_systems_names_have_no_namespace(name: str):
    assert NS.qualify(name) == NS.plain(name) == name


def test_without_a_namespace_everything_is_ones_own():
    assert NO_NAMESPACE.holds("orders")
    assert NO_NAMESPACE.holds("ns%orders")
    assert NO_NAMESPACE.plain("ns%orders") == "ns%orders"


def test_every_header_names_topics_and_groups_in_the_namespace():
    pull = PullMessageRequest(
        consumer_group="g", topic="t", queue_id=0, queue_offset=7, max_msg_nums=1, sys_flag=4, broker_name="b"
    )
    assert {name: pull.fields(NS)[name] for name in ("consumerGroup", "topic", "bname", "queueOffset")} == {
        "consumerGroup": "ns%g",
        "topic": "ns%t",
        "bname": "b",
        "queueOffset": "7",
    }
    send = SendMessageRequest(producer_group="p", topic="t", queue_id=0, born_timestamp=1, broker_name="b")
    assert [send.fields(NS)[name] for name in "abcn"] == ["ns%p", "ns%t", "TBW102", "b"]
    assert GetRouteInfoRequest(topic="%RETRY%g").fields(NS)["topic"] == "%RETRY%ns%g"
    assert "producerGroup" not in UnregisterClientRequest(client_id="c", consumer_group="g").fields(NS)
    back = ConsumerSendMsgBackRequest(
        offset=1, group="g", delay_level=0, origin_msg_id="m", origin_topic="t", max_reconsume_times=3,
        broker_name="b",
    )  # fmt: skip
    assert (back.fields(NS)["group"], back.fields(NS)["originTopic"]) == ("ns%g", "ns%t")


def test_a_template_is_in_the_namespace_and_its_request_is_not():
    request = GetRouteInfoRequest(topic="t")
    template = RequestTemplate(request, namespace=NS)
    assert b'"topic":"ns%t"' in template.frame_head(1, ())
    assert template.request(()) == request
