"""A template writes the very frames that the general encoder writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from pyspark_rocketmq.errors import LocalProtocolError
from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.frame import MAX_FRAME_SENT, encode_frame
from pyspark_rocketmq.remoting.header import EndTransactionRequest, PullMessageRequest
from pyspark_rocketmq.remoting.template import RequestTemplate

END: dict[str, Any] = {
    "topic": "orders",
    "producer_group": "g",
    "tran_state_table_offset": 0,
    "commit_log_offset": 7,
    "commit_or_rollback": 8,
    "msg_id": "",
    "broker_name": "broker-a",
}

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
    request = EndTransactionRequest(**END)
    template = RequestTemplate(request, "tran_state_table_offset", "msg_id")
    wanted = template.request((offset, msg_id))
    assert (wanted.tran_state_table_offset, wanted.msg_id, wanted.commit_log_offset) == (offset, msg_id, 7)
    expected = encode_frame(Command(code=wanted.CODE, opaque=opaque, fields=wanted.fields()))
    assert template.frame_head(opaque, (offset, msg_id)) == expected


def test_a_frame_has_room_for_its_body() -> None:
    template = RequestTemplate(EndTransactionRequest(**END), "tran_state_table_offset")
    frame = encode_frame(Command(code=37, opaque=5, fields=template.request((3,)).fields()), b"body")
    assert template.frame_head(5, (3,), 4) + b"body" == frame
    with pytest.raises(LocalProtocolError) as caught:
        template.frame_head(5, (3,), MAX_FRAME_SENT)
    assert caught.value.facts["code"] == 37


@pytest.mark.parametrize(
    ("varying", "values"),
    [
        pytest.param(("tran_state_table_offset",), ("3",), id="text for a number"),
        pytest.param(("tran_state_table_offset", "msg_id"), (1.5, "m"), id="fraction beside a text"),
        pytest.param(("tran_state_table_offset", "msg_id"), (3, None), id="nothing for a text"),
    ],
)
def test_a_value_of_another_type_is_our_error(varying: tuple[str, ...], values: tuple[Any, ...]) -> None:
    template = RequestTemplate(EndTransactionRequest(**END), *varying)
    with pytest.raises(LocalProtocolError, match="another type than declared") as caught:
        template.frame_head(5, values)
    assert caught.value.facts["header"] == "EndTransactionRequest"


def test_a_request_has_a_value_for_each_field_that_varies() -> None:
    template = RequestTemplate(EndTransactionRequest(**END), "tran_state_table_offset", "msg_id")
    with pytest.raises(ValueError, match="shorter"):
        template.request((3,))


def test_text_without_utf8_form_is_our_error_and_stays_out_of_it() -> None:
    template = RequestTemplate(EndTransactionRequest(**END), "msg_id")
    with pytest.raises(LocalProtocolError) as caught:
        template.frame_head(5, ("hush\ud800",))
    assert "hush" not in f"{caught.value!r}{caught.value}"
    assert (caught.value.facts["code"], caught.value.__cause__) == (37, None)
