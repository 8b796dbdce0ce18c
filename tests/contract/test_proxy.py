"""Reading and writing through a real proxy, in front of two brokers."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.support.cli import CommandLine
from tests.support.patient import PATIENCE_MS, patient_producer
from tests.support.topics import fill
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Admin,
    Client,
    OutgoingMessage,
    Producer,
    PullConsumer,
    SendPipeline,
    SendStatus,
    encode_many,
)
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import (
    MessageIllegalError,
    OptionError,
    TopicNotFoundError,
    UnsupportedRequestError,
)
from pyspark_rocketmq.model import MessageSelector, OffsetRange
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.header import GetRouteInfoRequest
from pyspark_rocketmq.tools.doctor import examine
from pyspark_rocketmq.tools.findings import Verdict

pytestmark = pytest.mark.needs("cluster")


@pytest.fixture
def cluster(proxied: DevCluster) -> DevCluster:
    return proxied


def test_a_proxy_is_recognized_by_its_answers(
    proxied: DevCluster, client: Client, proxied_topic: str
) -> None:
    def fields(addr: str) -> set[str]:
        return set(client.connection(addr).call(GetRouteInfoRequest(topic=proxied_topic)).fields)

    assert fields(proxied.proxy) == {"TRACE_ON", "MSG_REGION"}
    assert fields(proxied.name_server) == set()
    assert all(data.behind_proxy for data in client.route(proxied_topic).brokers)
    with Client(proxied.name_server) as direct:
        assert not any(data.behind_proxy for data in direct.route(proxied_topic).brokers)


def test_every_message_comes_without_a_request_that_times_out(client: Client, proxied_topic: str) -> None:
    ends = fill(client, proxied_topic, [OutgoingMessage(proxied_topic, b"x" * 2_000, tags="T")] * 8_000)
    ranges = [OffsetRange(queue, 0, end) for queue, end in ends.items()]
    options = ReadOptions(consumer_group="g", stall_timeout_ms=1)  # the first time-out fails the read
    rows = 0
    for batch in read_batches(client, ranges, options, DecodeOptions(columns=("body",))):
        rows += batch.num_rows if isinstance(batch, pa.RecordBatch) else 0
    assert rows == sum(ends.values()) == 8_000


def test_many_sends_are_in_flight(client: Client, proxied_topic: str) -> None:
    producer = Producer(client)
    outcomes = []
    with SendPipeline(producer, outage_timeout_ms=60_000) as pipeline:
        for _ in range(200):
            messages = [OutgoingMessage(proxied_topic, b"x" * 500) for _ in range(50)]
            outcomes += pipeline.submit(encode_many(messages, producer.ids))
        outcomes += pipeline.flush()
    assert [outcome.error for outcome in outcomes if outcome.error] == []
    queues = client.read_queues(proxied_topic)
    eventually(lambda: sum(client.max_offsets(queues).values()) == 10_000, 30, what="all messages")


def test_groups_times_tags_and_sql(client: Client, proxied_topic: str, group: str) -> None:
    ends = fill(client, proxied_topic, [OutgoingMessage(proxied_topic, b"x", tags="T")] * 200)
    assert set(client.committed_offsets(group, ends).values()) == {None}
    client.commit_offsets(group, ends)
    assert client.committed_offsets(group, ends) == ends
    assert client.offsets_at(dict.fromkeys(ends, 0)) == dict.fromkeys(ends, 0)
    consumer = PullConsumer(group, client=client)
    queue = min(ends)
    assert len(consumer.pull(queue, "T", 0).messages) == 32
    assert not consumer.pull(queue, "U", 0).messages
    with pytest.raises(OptionError, match="a proxy does not check"):
        client.check_selector(MessageSelector.by_sql("a = 1"), proxied_topic, group=group)


def test_what_a_proxy_does_not_serve(client: Client, proxied_topic: str) -> None:
    with pytest.raises(TopicNotFoundError, match="does not exist"):
        client.read_queues("missing")
    admin = Admin(client)
    for use in (admin.topics, admin.cluster_info, lambda: admin.create_topic("new")):
        with pytest.raises(UnsupportedRequestError, match="set the name servers' address") as caught:
            use()
        assert caught.value.facts["code"] == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_the_command_line_at_a_proxy(
    proxied: DevCluster,
    client: Client,
    proxied_topic: str,
    group: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = fill(client, proxied_topic, [OutgoingMessage(proxied_topic, b"x")] * 200)
    cli = CommandLine(capsys, monkeypatch, proxied.proxy)
    done = cli("offsets", "reset", group, proxied_topic, "--to", "latest", "--yes", "--json")
    assert (done.json()["consumersOnline"], done.json()["applied"]) == (None, True), done

    def is_committed() -> bool:
        return client.committed_offsets(group, ends) == ends

    eventually(is_committed, 30, what="the group's offsets")
    assert cli("lag", group, "--topic", proxied_topic, "--json").json()["lag"] == 0
    exported = cli("offsets", "export", group, "--topic", proxied_topic).json()[proxied_topic]
    assert sum(offset for queues in exported.values() for offset in queues.values()) == 200
    assert len(cli("peek", proxied_topic, "--count", "3", "--json").json()) == 3
    monkeypatch.setattr("pyspark_rocketmq.tools.doctor._TIMEOUT_MS", PATIENCE_MS)
    proxy, *findings = examine(client.options, topic=proxied_topic, group=group)
    assert (proxy.verdict, proxy.subject) == (Verdict.POOR, f"proxy {proxied.proxy}")
    assert [(each.verdict, each.seen) for each in findings] == [
        (Verdict.GOOD, "4 queues, 200 messages"),
        (Verdict.GOOD, f"0 messages behind on {proxied_topic}"),
    ]


def test_the_doctor_knows_a_proxy_without_a_topic(
    proxied: DevCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_rocketmq.tools.doctor._TIMEOUT_MS", PATIENCE_MS)
    (finding,) = examine(client.options)
    assert (finding.verdict, finding.subject) == (Verdict.POOR, f"proxy {proxied.proxy}")


def test_a_topic_takes_messages_of_its_type(client: Client, proxied: DevCluster, proxied_topic: str) -> None:
    """A proxy checks the type, of which brokers take no notice. A batch counts as normal."""
    ordered = OutgoingMessage(proxied_topic, b"x", sharding_key="s")
    producer = patient_producer(client)
    with pytest.raises(MessageIllegalError, match=r"takes NORMAL messages and this one is FIFO.*to MIXED"):
        producer.send(ordered)
    producer.send_batch([ordered, ordered])
    with Client(proxied.name_server) as direct:
        Admin(direct).alter_topic(proxied_topic, attributes={"message.type": "MIXED"})

    def is_taken() -> bool:
        try:
            return producer.send(ordered).status is SendStatus.SEND_OK
        except MessageIllegalError:
            return False

    eventually(is_taken, 120, what="the type, which a proxy keeps for a while")
