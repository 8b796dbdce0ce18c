"""What one range asks for and when, and what becomes of its offsets: with brokers that are scripts."""

from __future__ import annotations

import pytest
from tests.simulation.edge_answers import answer
from tests.support.lockstep import MASTER, SLAVE, Answer, LockstepClient, at_most, found

from pyspark_rocketmq.client.read.range_pull import RangePull
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.errors import (
    BrokerError,
    BrokerNotFoundError,
    ConnectError,
    DataLossError,
    RemoteProtocolError,
    RequestTimeoutError,
    RocketMQError,
)
from pyspark_rocketmq.model import MessageQueue, MessageSelector, OffsetRange
from pyspark_rocketmq.planning.pulling.pull_concurrency import PullDepth
from pyspark_rocketmq.record.decode.arrow import Chunk
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.template import RequestTemplate

QUEUE = MessageQueue("orders", "broker-a", 0)
ROOM = 1 << 30
BUSY = Answer(0, code=ResponseCode.SYSTEM_BUSY, remark="[TIMEOUT_CLEAN_QUEUE]broker busy")
_COLD_CODE, _COLD_REMARK = answer("a group without members reads cold data")
COLD = Answer(0, code=_COLD_CODE, remark=_COLD_REMARK)
CLOSED = Answer(0, code=ResponseCode.SYSTEM_BUSY, remark="[REJECTREQUEST]slave")


def pull_of(
    client: LockstepClient, until: int, depth: PullDepth | None = None, **options: object
) -> RangePull:
    given = ReadOptions(**{"consumer_group": "g", **options})
    return RangePull(client, OffsetRange(QUEUE, 0, until), given, depth or PullDepth())


def read_all(pull: RangePull) -> list[Chunk]:
    chunks: list[Chunk] = []
    while not pull.done:
        pull.ask(8, ROOM)
        chunks += pull.advance()
    return chunks


# --- what is asked --------------------------------------------------------------------------


def test_after_a_failure_nothing_is_asked_until_it_is_handled() -> None:
    client = LockstepClient(at_most(32))
    client.down = (MASTER,)
    pull = pull_of(client, 100)
    assert pull.ask(4, ROOM) == 0
    client.down = ()
    assert pull.ask(4, ROOM) == 0
    assert client.pulls == []
    assert pull.advance() == []
    assert client.manual_clock.sleeps == [0.05]
    assert pull.ask(4, ROOM) == 4
    assert [offset for _, offset in client.pulls] == [0, 32, 64, 96]


def test_there_is_nothing_to_ask_of_an_empty_range() -> None:
    client = LockstepClient(at_most(32))
    pull = pull_of(client, 0)
    assert pull.done
    assert pull.ask(4, ROOM) == 0
    assert client.pulls == []


@pytest.mark.parametrize("busy", [BUSY, COLD])
def test_a_broker_that_is_busy_is_asked_for_one_pull_after_a_pause(busy: Answer) -> None:
    client = LockstepClient(lambda *_: busy)
    asked: list[tuple[int, float]] = []
    clock, began_s = client.manual_clock, client.manual_clock.now_s

    def script(addr: str, offset: int, most: int) -> Answer:
        asked.append((offset, round(clock.now_s - began_s, 3)))
        return busy if asked == [(0, 0.0)] else found(offset, most)

    client.script = script
    pull = pull_of(client, 96)
    assert pull.ask(2, ROOM) == 2
    assert pull.advance() == []
    assert pull.ask(2, ROOM) == 0
    assert [(chunk.from_offset, chunk.until_offset) for chunk in pull.advance()] == [(0, 32), (32, 64)]
    assert asked == [(0, 0.0), (32, 0.0), (0, 0.05)]
    assert pull.ask(2, ROOM) == 1


def test_requests_of_a_connection_have_one_template() -> None:
    client = LockstepClient(at_most(32))
    read_all(pull_of(client, 1_000))
    templates = client.connection(MASTER).templates
    assert len(templates) > 1
    assert isinstance(templates[0], RequestTemplate)
    assert {id(each) for each in templates} == {id(templates[0])}


def test_fast_answers_deepen_the_pipeline() -> None:
    def script(addr: str, offset: int, most: int) -> Answer:
        client.manual_clock.now_s += 0.001
        return found(offset, most)

    client = LockstepClient(script)
    depth = PullDepth(None)
    pull = pull_of(client, 100_000, depth)
    before = depth.limit
    for _ in range(3):
        pull.ask(depth.limit, ROOM)
        pull.advance()
    assert depth.limit > before


def test_closing_drops_what_is_in_flight_and_keeps_what_was_learned() -> None:
    client = LockstepClient(at_most(8))
    pull = pull_of(client, 1_000)
    pull.ask(4, ROOM)
    pull.advance()
    assert pull.ask(4, ROOM) == 4
    pull.close()
    assert pull.in_flight == 0
    assert client.connection(MASTER).asked == {}
    assert client.pull_hints.of(QUEUE, MessageSelector()).stride == 8


# --- what becomes of offsets ----------------------------------------------------------------


def with_a_hole(addr: str, offset: int, most: int) -> Answer:
    """Give ten messages a pull, without offsets 13 and 14."""
    there = [number for number in range(offset, offset + 10) if number not in {13, 14}]
    return Answer(offset + 10, b"".join(found(number, 1).records for number in there))


@pytest.mark.parametrize("natural", [False, True])
def test_offsets_without_a_message_are_lost_unless_the_topic_has_holes_by_nature(
    natural: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[MessageQueue] = []

    def has_natural_holes(_: object, queue: MessageQueue, *__: object) -> bool:
        asked.append(queue)
        return natural

    monkeypatch.setattr("pyspark_rocketmq.client.read.pull_answer.has_natural_holes", has_natural_holes)
    pull = pull_of(LockstepClient(with_a_hole), 20, fail_on_data_loss=False)
    first, second = read_all(pull)
    pull.account_for([first], 10)
    assert (pull.gaps, pull.lost, asked) == (0, [], [])
    pull.account_for([second], 8)
    pull.account_for([second], 8)
    assert asked == [QUEUE]
    lost = [(each.offsets, each.condition) for each in pull.lost]
    removed = (OffsetRange(QUEUE, 13, 15), "OFFSETS_EXPIRED")
    assert (pull.gaps, lost) == ((4, []) if natural else (0, [removed, removed]))


def test_offsets_without_a_message_end_a_read_that_may_lose_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_rocketmq.client.read.pull_answer.has_natural_holes", lambda *_: False)
    pull = pull_of(LockstepClient(with_a_hole), 20)
    chunks = read_all(pull)
    with pytest.raises(DataLossError, match="from_offset=13, until_offset=15"):
        pull.account_for(chunks, 18)


@pytest.mark.parametrize("why", ["filtered", "natural"])
def test_holes_that_are_no_loss_are_taken_from_a_slave_too(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pyspark_rocketmq.client.read.pull_answer.has_natural_holes", lambda *_: why == "natural"
    )
    client = LockstepClient(with_a_hole, slave=True)
    client.addresses = {1: SLAVE}
    selector = MessageSelector.by_tag("a") if why == "filtered" else MessageSelector()
    chunks = read_all(pull_of(client, 20, selector=selector))
    assert [(chunk.from_offset, chunk.until_offset) for chunk in chunks] == [(0, 10), (10, 20)]
    assert client.manual_clock.sleeps == []


def test_of_a_filtered_read_no_offset_without_a_message_is_lost() -> None:
    pull = pull_of(LockstepClient(with_a_hole), 20, selector=MessageSelector.by_tag("a"))
    pull.account_for(read_all(pull), 3)
    assert (pull.gaps, pull.lost) == (0, [])


@pytest.mark.parametrize(
    ("word", "fine"),
    [
        pytest.param(
            Answer(100, code=ResponseCode.PULL_OFFSET_MOVED, remark="OFFSET_TOO_SMALL", min_offset=100),
            False,
            id="begins later",
        ),
        pytest.param(
            Answer(100, code=ResponseCode.PULL_RETRY_IMMEDIATELY, remark="NO_MATCHED_MESSAGE"),
            False,
            id="a scan though there is no filter",
        ),
        pytest.param(
            Answer(100, code=ResponseCode.PULL_RETRY_IMMEDIATELY, remark="NO_MATCHED_MESSAGE"),
            True,
            id="a filter's scan",
        ),
    ],
)
def test_a_jump_counts_from_where_the_reader_is_when_its_turn_comes(
    word: Answer, fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pull after the first is answered with it: the first one's messages are there."""
    monkeypatch.setattr("pyspark_rocketmq.client.read.pull_answer.has_natural_holes", lambda *_: False)
    client = LockstepClient(lambda addr, offset, most: word if 32 <= offset < 100 else found(offset, 32))
    selector = MessageSelector.by_tag("a") if fine else MessageSelector()
    client.pull_hints.of(QUEUE, selector).stride = 32
    pull = pull_of(client, 132, fail_on_data_loss=False, selector=selector)
    assert pull.ask(3, ROOM) == 3
    chunks = pull.advance()
    chunks += read_all(pull)
    assert [(chunk.from_offset, chunk.until_offset) for chunk in chunks] == [(0, 32), (100, 132)]
    lost = [(each.offsets, each.condition) for each in pull.lost]
    assert lost == ([] if fine else [(OffsetRange(QUEUE, 32, 100), "OFFSETS_EXPIRED")])


def test_an_end_counts_from_where_the_reader_is_when_its_turn_comes() -> None:
    def script(addr: str, offset: int, most: int) -> Answer:
        if offset < 32:
            return found(offset, 32)
        return Answer(32, code=ResponseCode.PULL_NOT_FOUND, remark="OFFSET_OVERFLOW_ONE", max_offset=32)

    pull = pull_of(LockstepClient(script), 132, fail_on_data_loss=False, missing_patience_ms=0)
    assert pull.ask(3, ROOM) == 3
    chunks = pull.advance()
    chunks += read_all(pull)
    assert [(chunk.from_offset, chunk.until_offset) for chunk in chunks] == [(0, 32)]
    lost = [(each.offsets, each.condition) for each in pull.lost]
    assert lost == [(OffsetRange(QUEUE, 32, 132), "OFFSET_WENT_BACK")]


@pytest.mark.parametrize(
    "gone",
    [
        Answer(0, code=ResponseCode.TOPIC_NOT_EXIST),
        Answer(0, code=ResponseCode.INVALID_PARAMETER),
        Answer(0, code=ResponseCode.SYSTEM_ERROR, remark="queueId[0] is illegal"),
    ],
)
def test_what_its_master_no_longer_has_is_lost_once_everything_before_it_is_read(
    gone: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = LockstepClient(lambda addr, offset, most: found(offset, 32) if offset < 64 else gone)
    looked_up: list[str] = []
    monkeypatch.setattr(client, "invalidate", looked_up.append)
    pull = pull_of(client, 200, fail_on_data_loss=False)
    assert [chunk.until_offset for chunk in read_all(pull)] == [32, 64]
    assert [(each.offsets, each.condition) for each in pull.lost] == [
        (OffsetRange(QUEUE, 64, 200), "QUEUE_LOST")
    ]
    assert looked_up == ["orders"]
    assert client.manual_clock.sleeps == []
    with pytest.raises(DataLossError):
        read_all(pull_of(client, 200))


# --- how it continues after a failure -------------------------------------------------------


@pytest.mark.parametrize(
    ("stale", "after"), [(True, 1), (False, 2)], ids=["an error of a stale route", "any other error"]
)
def test_the_route_is_looked_up_again(stale: bool, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[str] = []

    def script(addr: str, offset: int, most: int) -> Answer:
        if len(failures) < 3:
            failures.append(addr)
            error = ConnectError("the connection broke", addr=addr)
            error.stale_route = stale
            raise error
        return found(offset, most)

    client = LockstepClient(script)
    looked_up: list[tuple[str, int]] = []
    monkeypatch.setattr(client, "invalidate", lambda topic: looked_up.append((topic, len(failures))))
    read_all(pull_of(client, 32))
    assert looked_up == [("orders", number) for number in range(after, 4)]


@pytest.mark.parametrize(
    ("error", "dropped"),
    [(RequestTimeoutError("no answer"), [MASTER]), (ConnectError("the connection broke"), [])],
    ids=["no answer", "another error"],
)
def test_a_connection_without_an_answer_is_not_used_again(
    error: RocketMQError, dropped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(addr: str, offset: int, most: int) -> Answer:
        if len(client.pulls) == 1:
            raise error
        return found(offset, most)

    client = LockstepClient(script)
    closed: list[str] = []
    monkeypatch.setattr(client, "drop", closed.append)
    read_all(pull_of(client, 32))
    assert closed == dropped


@pytest.mark.parametrize(("code", "pause_s"), [(ResponseCode.PULL_NOT_FOUND, 0.3), (14, 0.05)])
def test_only_messages_that_are_not_there_yet_have_their_own_pause(code: int, pause_s: float) -> None:
    def script(addr: str, offset: int, most: int) -> Answer:
        return found(offset, most) if len(client.pulls) > 1 else Answer(0, code=code, remark="not now")

    client = LockstepClient(script)
    read_all(pull_of(client, 32, empty_pull_delay_ms=300))
    assert client.manual_clock.sleeps == [pause_s]


# --- whom an error names --------------------------------------------------------------------


def error_of(pull: RangePull) -> RocketMQError:
    with pytest.raises(RocketMQError) as caught:
        read_all(pull)
    return caught.value


def test_a_read_that_stalls_ends_with_the_last_failure() -> None:
    client = LockstepClient(at_most(32))
    client.down = (MASTER,)
    began_s = client.manual_clock.now_s
    error = error_of(pull_of(client, 100, stall_timeout_ms=30_000))
    assert isinstance(error, ConnectError)
    assert (error.facts["queue"], error.facts["offset"]) == (str(QUEUE), 0)
    assert 30 <= client.manual_clock.now_s - began_s < 33


def test_a_read_that_stalls_at_a_slave_that_may_not_be_read_says_so() -> None:
    client = LockstepClient(lambda *_: CLOSED, slave=True)
    client.down = (MASTER,)
    error = error_of(pull_of(client, 100, stall_timeout_ms=30_000))
    assert isinstance(error, BrokerNotFoundError)
    assert "slaveReadEnable" in str(error)


def test_a_slave_that_may_not_be_read_is_forgotten_with_the_next_progress() -> None:
    def script(addr: str, offset: int, most: int) -> Answer:
        if addr == SLAVE:
            return CLOSED
        if offset >= 64:
            raise ConnectError("the connection broke", addr=addr)
        return found(offset, 32)

    client = LockstepClient(script, slave=True)
    pull = pull_of(client, 100, stall_timeout_ms=30_000)
    client.down = (MASTER,)
    for _ in range(2):
        pull.ask(1, ROOM)
        pull.advance()
    assert client.pulls == [(SLAVE, 0)]
    client.down = ()
    client.addresses = {0: MASTER}
    pull.ask(1, ROOM)
    assert len(pull.advance()) == 1
    assert isinstance(error_of(pull), ConnectError)


def test_a_failure_that_is_not_worth_a_retry_ends_the_read_at_once() -> None:
    client = LockstepClient(lambda addr, offset, most: Answer(offset, found(offset, 1).records))
    error = error_of(pull_of(client, 100))
    assert isinstance(error, RemoteProtocolError)
    assert client.manual_clock.sleeps == []


def test_a_broker_that_is_only_busy_is_left_for_another_one() -> None:
    """A master that became a slave only says that it is busy."""
    client = LockstepClient(
        lambda addr, offset, most: BUSY if addr == MASTER else found(offset, min(most, 32)), slave=True
    )
    assert [chunk.until_offset for chunk in read_all(pull_of(client, 64))] == [32, 64]
    assert [addr for addr, _ in client.pulls][-1] == SLAVE
    assert client.manual_clock.sleeps == [0.05]


def test_a_reset_of_the_group_that_is_told_again_and_again_ends_the_read() -> None:
    client = LockstepClient(
        lambda *_: Answer(0, code=ResponseCode.PULL_OFFSET_MOVED, remark="OFFSET_RESET", max_offset=100)
    )
    began_s = client.manual_clock.now_s
    error = error_of(pull_of(client, 100, stall_timeout_ms=30_000))
    assert isinstance(error, BrokerError)
    assert 30 <= client.manual_clock.now_s - began_s < 33
    pauses = client.manual_clock.sleeps
    assert pauses[:3] == pytest.approx([0.05, 0.1, 0.2])
    assert max(pauses) == pytest.approx(2.0)


@pytest.mark.parametrize(("remark", "min_offset"), [("OFFSET_RESET", 50), ("OFFSET_TOO_SMALL", 0)])
def test_a_reset_of_the_group_is_no_loss(remark: str, min_offset: int) -> None:
    """Of a static topic's queue the remark is left out."""

    def script(addr: str, offset: int, most: int) -> Answer:
        if len(client.pulls) == 1:
            code = ResponseCode.PULL_OFFSET_MOVED
            return Answer(50, code=code, remark=remark, min_offset=min_offset, max_offset=100)
        return found(offset, most)

    client = LockstepClient(script)
    pull = pull_of(client, 64)
    pull.ask(1, ROOM)
    assert pull.advance() == []
    assert [chunk.from_offset for chunk in read_all(pull)] == [0, 32]
    assert pull.lost == []


@pytest.mark.parametrize("filtered", [False, True])
def test_a_jump_over_holes_by_nature_is_no_loss(filtered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def script(addr: str, offset: int, most: int) -> Answer:
        if 10 <= offset < 50:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            return Answer(50, code=code, remark="MESSAGE_WAS_REMOVING", max_offset=100)
        return found(offset, min(most, 10 - offset) if offset < 10 else most)

    monkeypatch.setattr("pyspark_rocketmq.client.read.pull_answer.has_natural_holes", lambda *_: True)
    selector = MessageSelector.by_tag("a") if filtered else MessageSelector()
    pull = pull_of(LockstepClient(script), 60, selector=selector)
    chunks = read_all(pull)
    assert [(chunk.from_offset, chunk.until_offset) for chunk in chunks] == [(0, 10), (50, 60)]
    assert (pull.gaps, pull.lost) == (0 if filtered else 40, [])


def test_answers_that_came_with_one_that_could_not_be_judged_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are not in flight any more, also if the question that failed timed out on a slow connection."""
    slow = RequestTimeoutError("no answer")
    slow.arriving = (1, 10)
    failures = [slow]

    def has_natural_holes(*_: object) -> bool:
        if failures:
            raise failures.pop()
        return True

    def script(addr: str, offset: int, most: int) -> Answer:
        if offset == 0:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            return Answer(32, code=code, remark="MESSAGE_WAS_REMOVING", max_offset=128)
        return found(offset, most)

    monkeypatch.setattr("pyspark_rocketmq.client.read.pull_answer.has_natural_holes", has_natural_holes)
    client = LockstepClient(script)
    pull = pull_of(client, 128)
    pull.ask(3, ROOM)
    assert pull.advance() == []
    assert pull.in_flight == 0
    chunks = read_all(pull)
    assert [(chunk.from_offset, chunk.until_offset) for chunk in chunks] == [(32, 64), (64, 96), (96, 128)]
    assert (pull.gaps, pull.lost) == (32, [])
