"""A template writes the very frames that the general encoder writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.frame import encode_frame
from pyspark_rocketmq.remoting.header import EndTransactionRequest, PullMessageRequest
from pyspark_rocketmq.remoting.template import RequestTemplate

NUMBERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ['"queueOffset":"0"', ',"opaque":0,', "%d %s %%", "\\", '\\"queueOffset\\":"0"']
)


@examples(200)
@given(text=TEXTS, topic=TEXTS, opaque=st.integers(0, 2**31 - 1), offset=NUMBERS, count=NUMBERS)
def test_template_writes_what_the_encoder_writes(
    text: str, topic: str, opaque: int, offset: int, count: int
) -> None:
    request = PullMessageRequest(
        consumer_group="g",
        topic=topic,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=0,
        sys_flag=0,
        subscription=text,
        broker_name="broker-a",
    )
    template = RequestTemplate(request, "queue_offset", "max_msg_nums")
    wanted = template.request((offset, count))
    assert (wanted.queue_offset, wanted.max_msg_nums, wanted.subscription) == (offset, count, text)
    expected = encode_frame(Command(code=wanted.CODE, opaque=opaque, fields=wanted.fields()))
    assert template.frame_head(opaque, (offset, count)) == expected


@examples(50)
@given(msg_id=st.text("0123456789ABCDEF:.", max_size=40), opaque=st.integers(0, 2**31 - 1), offset=NUMBERS)
def test_texts_may_differ_too(msg_id: str, opaque: int, offset: int) -> None:
    request = EndTransactionRequest(
        topic="orders",
        producer_group="g",
        tran_state_table_offset=0,
        commit_log_offset=7,
        commit_or_rollback=8,
        msg_id="",
        broker_name="broker-a",
    )
    template = RequestTemplate(request, "tran_state_table_offset", "msg_id")
    wanted = template.request((offset, msg_id))
    assert (wanted.tran_state_table_offset, wanted.msg_id, wanted.commit_log_offset) == (offset, msg_id, 7)
    expected = encode_frame(Command(code=wanted.CODE, opaque=opaque, fields=wanted.fields()))
    assert template.frame_head(opaque, (offset, msg_id)) == expected
