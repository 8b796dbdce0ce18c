"""Records of the message trace, as Java's TraceDataEncoder writes them."""

from __future__ import annotations

from pyspark_rocketmq.record.message_trace import Consumed, Consuming, Sent, TraceMessageType, encode_traces


def test_a_send_has_java_s_fields_in_java_s_order() -> None:
    sent = Sent(
        at_ms=1_700_000_000_000,
        region="DefaultRegion",
        group="g",
        topic="orders",
        msg_id="ID1",
        tags="new",
        keys="k1 k2",
        store_host="127.0.0.1:10911",
        body_bytes=5,
        cost_ms=7,
        kind=TraceMessageType.ORDERED,
        offset_msg_id="OFF",
    )
    assert encode_traces([sent]) == (
        b"Pub\x011700000000000\x01DefaultRegion\x01g\x01orders\x01ID1\x01new\x01k1 k2\x01127.0.0.1:10911\x01"
        b"5\x017\x014\x01OFF\x01true\x02"
    )


def test_a_call_is_two_records_with_one_request_id() -> None:
    before = Consuming(at_ms=1, region="R", group="g", request_id="RQ", msg_id="ID", retry_times=2, keys="k")
    after = Consumed(at_ms=9, group="g", request_id="RQ", msg_id="ID", cost_ms=8, success=False, code=1)
    assert encode_traces([before, after]) == (
        b"SubBefore\x011\x01R\x01g\x01RQ\x01ID\x012\x01k\x02SubAfter\x01RQ\x01ID\x018\x01false\x01\x011\x019\x01g\x02"
    )


def test_separators_in_texts_do_not_end_a_field() -> None:
    sent = Sent(at_ms=1, region="R", group="g", topic="t", msg_id="I", keys="a\x01b\x02c")
    assert encode_traces([sent]).count(b"\x02") == 1
    assert b"\x01a b c\x01" in encode_traces([sent])
