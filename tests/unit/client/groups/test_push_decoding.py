"""Which messages of a pull a member gets: those with its tags, and none that does not decode."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pyspark_rocketmq.client.groups import push_decoding
from pyspark_rocketmq.client.groups.push_decoding import PushDecoder
from pyspark_rocketmq.client.groups.push_options import PushOptions
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.requests import PullAnswer
from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.model import Message, MessageQueue, MessageSelector, PullStatus
from pyspark_rocketmq.record.decode.rows import Chunk
from pyspark_rocketmq.record.message import encode_message
from pyspark_rocketmq.remoting.header import PullMessageResponse

QUEUE = MessageQueue("orders", "broker-a", 3)
ALL = MessageSelector()


def record(offset: int, body: bytes = b"body", **fields: object) -> bytes:
    return encode_message(body, {"TAGS": "Aa"}, topic="orders", queue_id=3, queue_offset=offset, **fields)  # type: ignore[arg-type]


def answer(
    *records: bytes, delta: int = 0, status: PullStatus = PullStatus.FOUND, end: int = 99
) -> PullAnswer:
    header = PullMessageResponse(
        suggest_which_broker_id=0, next_begin_offset=end, min_offset=0, max_offset=100, offset_delta=delta
    )
    return PullAnswer(status, header, memoryview(b"".join(records)))


def decode(given: PullAnswer, selector: MessageSelector = ALL, **options: object) -> list[Message]:
    decoder = PushDecoder(CLIENT, "billing", QUEUE, selector, PushOptions(**options))  # type: ignore[arg-type]
    return decoder.messages(given, 10)


def offsets(messages: list[Message]) -> list[int]:
    return [message.queue_offset for message in messages]


CLIENT = object()
NO_SUCH_COMPRESSION = 0x401
BROKEN = record(11)[:4] + b"\0\0\0\0" + record(11)[8:]


def test_messages_are_of_the_queue_and_of_the_offsets_that_were_asked_for() -> None:
    found = decode(answer(record(9), record(10), record(11), record(12), end=12))
    assert offsets(found) == [10, 11]
    places = {(message.topic, message.broker_name, message.queue_id) for message in found}
    assert places == {("orders", "broker-a", 3)}


def test_a_static_topic_s_messages_have_its_offsets() -> None:
    assert offsets(decode(answer(record(10), record(11), delta=1_000, end=2_000))) == [1_010, 1_011]


@pytest.mark.parametrize("status", [each for each in PullStatus if each is not PullStatus.FOUND])
def test_another_answer_has_no_messages(status: PullStatus) -> None:
    assert decode(answer(record(10), status=status)) == []


def test_tags_are_compared_since_brokers_compare_hashes() -> None:
    """Aa and BB have one hash."""
    given = answer(record(10), encode_message(b"x", {"TAGS": "BB"}, topic="orders", queue_offset=11))
    assert offsets(decode(given)) == [10, 11]
    assert offsets(decode(given, MessageSelector.by_tag("BB || C"))) == [11]
    assert offsets(decode(given, MessageSelector.by_tag("C"))) == []


def test_a_checksum_is_compared_if_this_is_asked_for() -> None:
    changed = bytearray(record(10))
    changed[88] ^= 1
    assert offsets(decode(answer(bytes(changed)))) == [10]
    with pytest.raises(CorruptMessageError, match="checksum"):
        decode(answer(bytes(changed)), check_crc=True)


@pytest.mark.parametrize("odd", [record(11, sys_flag=NO_SUCH_COMPRESSION), BROKEN], ids=["body", "layout"])
def test_a_message_that_does_not_decode_is_an_error_by_default(
    odd: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_decoding, "read_again", lambda *_: pytest.fail("nothing is pulled again"))
    with pytest.raises(CorruptMessageError):
        decode(answer(record(10), odd, record(12)))


def test_one_whose_body_does_not_decode_is_skipped_with_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_decoding, "read_again", lambda *_: pytest.fail("nothing is pulled again"))
    odd = record(11, sys_flag=NO_SUCH_COMPRESSION)
    assert offsets(decode(answer(record(10), odd, record(12)), on_corrupt="skip")) == [10, 12]
    (warning,) = caplog.messages
    assert "skipped a message" in warning
    assert "at 11" in warning


def test_one_that_hides_those_after_it_is_pulled_again_and_skipped_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given, alone = answer(record(10), BROKEN, record(12), delta=5), record(10) + record(12)
    selector = MessageSelector.by_tag("Aa")

    def read_again(
        client: object, queue: MessageQueue, chunks: Sequence[Chunk], options: ReadOptions
    ) -> list[Chunk]:
        (chunk,) = chunks
        assert (client, queue) == (CLIENT, QUEUE)
        assert (chunk.start, chunk.end) == (0, len(given.records))
        assert (chunk.from_offset, chunk.until_offset, chunk.offset_delta) == (10, 99, 5)
        assert (options.consumer_group, options.selector) == ("billing", selector)
        assert options.stall_timeout_ms == 5_000, "then the whole pull is repeated"
        return [Chunk(memoryview(alone), 0, len(alone), 10, 99)]

    monkeypatch.setattr(push_decoding, "read_again", read_again)
    assert offsets(decode(given, selector, on_corrupt="skip")) == [10, 12]
