"""How many round trips, pulls and bytes a read takes, and whom it believes: with brokers that are scripts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from tests.support.lockstep import MASTER, SLAVE, Answer, LockstepClient, at_most, found

from pyspark_rocketmq.client.read.range_reader import Pulled, RangeEnd, RangeReader, read_chunks
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.errors import ConnectError, DataLossError, RemoteProtocolError
from pyspark_rocketmq.model import MessageQueue, MessageSelector, OffsetRange
from pyspark_rocketmq.record.decode.holes import find_holes
from pyspark_rocketmq.record.layout import MIN_RECORD_SIZE
from pyspark_rocketmq.remoting.codes import ResponseCode

QUEUE = MessageQueue("orders", "broker-a", 0)
NOTHING = ResponseCode.PULL_NOT_FOUND
RETRY = ResponseCode.PULL_RETRY_IMMEDIATELY
MOVED = ResponseCode.PULL_OFFSET_MOVED


def read(
    client: LockstepClient, until: int, *, meanwhile: Callable[[], None] = lambda: None, **options: object
) -> list[tuple[int, int]]:
    """Read ``[0, until)``; return the offsets of its chunks."""
    given = {"consumer_group": "g", **options}
    offsets = []
    for event in read_chunks(client, [OffsetRange(QUEUE, 0, until)], ReadOptions(**given)):
        match event:
            case Pulled(_, chunks):
                assert not find_holes(chunks, QUEUE.topic)
                offsets += [(chunk.from_offset, chunk.until_offset) for chunk in chunks]
                meanwhile()
            case RangeEnd(pull):
                client.lost = [(str(lost.offsets), lost.condition) for lost in pull.lost]
    return offsets


def covered(chunks: list[tuple[int, int]]) -> list[int]:
    return [offset for start, end in chunks for offset in range(start, end)]


# --- round trips ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "a_pull", "stride", "most_trips"),
    [
        pytest.param(3_200, 1, None, 103, id="one message a pull"),
        pytest.param(3_200, 8, None, 16, id="eight messages a pull, as from disk"),
        pytest.param(100_000, 32, None, 102, id="as many as was thought"),
        pytest.param(100_000, 32, 1_024, 102, id="a stride from a broker that gave more"),
        pytest.param(100_000, 500, 8, 30, id="a stride from a broker that gave less"),
    ],
)
def test_a_wrong_prediction_costs_a_trip_and_not_the_pipeline(
    messages: int, a_pull: int, stride: int | None, most_trips: int
) -> None:
    client = LockstepClient(at_most(a_pull))
    client.pull_hints.of(QUEUE, MessageSelector()).stride = stride
    assert covered(read(client, messages)) == list(range(messages))
    assert client.trips <= most_trips
    assert len(client.pulls) <= 1.05 * (messages / a_pull + 64)


def test_a_filtered_read_teaches_an_unfiltered_one_nothing() -> None:
    def script(addr: str, offset: int, asked: int) -> Answer:
        if filtered:
            return Answer(offset + max(800, asked), code=RETRY, remark="NO_MATCHED_MESSAGE")
        return found(offset, min(32, asked))

    client = LockstepClient(script)
    filtered = True
    read(client, 100_000, selector=MessageSelector.by_tag("none"))
    filtered, client.trips = False, 0
    assert covered(read(client, 100_000)) == list(range(100_000))
    assert client.trips <= 102


def test_a_busy_broker_is_asked_again_for_what_it_refused_and_for_no_more() -> None:
    refusals, chance = 0, Random(1)

    def script(addr: str, offset: int, asked: int) -> Answer:
        nonlocal refusals
        if chance.random() < 0.1:
            refusals += 1
            return Answer(0, code=ResponseCode.SYSTEM_BUSY, remark="[TIMEOUT_CLEAN_QUEUE]broker busy")
        return found(offset, min(32, asked))

    client = LockstepClient(script)
    assert covered(read(client, 64_000)) == list(range(64_000))
    assert refusals > 100
    assert len(client.pulls) <= 2_000 + 2 + refusals
    assert client.manual_clock.sleeps, "a pause before what was refused is asked again"


def test_a_lost_connection_costs_no_answer_that_is_here() -> None:
    def script(addr: str, offset: int, asked: int) -> Answer:
        if offset == 320 and client.pulls.count((addr, offset)) == 1:
            raise ConnectError("the connection broke", addr=addr)
        return found(offset, min(32, asked))

    client = LockstepClient(script)
    assert covered(read(client, 640)) == list(range(640))


def test_an_empty_range_ends_without_a_request() -> None:
    client = LockstepClient(at_most(32))
    ranges = [OffsetRange(QUEUE, 5, 5), OffsetRange(QUEUE, 7, 8), OffsetRange(QUEUE, 9, 9)]
    events = list(read_chunks(client, ranges, ReadOptions(consumer_group="g")))
    assert [event.pull.offsets for event in events if isinstance(event, RangeEnd)] == ranges
    assert [event.pull.offsets for event in events if isinstance(event, Pulled)] == ranges[1:2]
    assert client.pulls == [(MASTER, 7)]


# --- bytes ----------------------------------------------------------------------------------


def test_large_messages_stay_within_the_bound_from_the_first_pull_on() -> None:
    bound = 32 << 10
    client = LockstepClient(at_most(1, size=4 << 10))
    assert covered(read(client, 40, max_bytes_in_flight=bound)) == list(range(40))
    assert client.most_bytes <= bound
    assert client.trips < 15  # and they are pipelined all the same


def test_the_bound_is_of_all_ranges_together() -> None:
    bound = 32 << 10
    client = LockstepClient(at_most(1, size=10 << 10))  # four at once would be too much
    ranges = [OffsetRange(MessageQueue(f"t{number}", "broker-a", 0), 0, 5) for number in range(20)]
    options = ReadOptions(consumer_group="g", max_bytes_in_flight=bound)
    events = list(read_chunks(client, ranges, options))
    assert (sum(isinstance(event, RangeEnd) for event in events), len(client.pulls)) == (20, 100)
    assert 20 << 10 <= client.most_bytes <= bound


def test_no_range_is_begun_that_has_no_room() -> None:
    client = LockstepClient(at_most(1, size=3_500))
    ranges = [OffsetRange(MessageQueue("orders", "broker-a", number), 0, 2) for number in range(100)]
    options = ReadOptions(consumer_group="g", max_bytes_in_flight=32 << 10)
    reader = RangeReader(client, ranges, options)
    begun = [len(reader._active) for event in reader if isinstance(event, Pulled)]
    assert len(begun) >= 100
    assert max(begun) <= 8


@pytest.mark.parametrize(
    "selector", [MessageSelector(), MessageSelector.by_tag("a")], ids=["all", "filtered"]
)
@pytest.mark.parametrize(
    ("answers", "pulls", "first", "then"),
    [
        pytest.param(8, 32, [0, 1, 100, 101, 200, 201], [202, 203], id="a quarter is for the first range"),
        pytest.param(4, 32, [0, 1, 100], [101, 200], id="room for exactly one more"),
        pytest.param(8, 3, [0, 1, 100], [101, 200], id="one pull left"),
        pytest.param(8, 2, [0, 1], [100, 101], id="no pull left"),
    ],
)
def test_later_ranges_use_what_the_first_one_leaves(
    answers: int, pulls: int, first: list[int], then: list[int], selector: MessageSelector
) -> None:
    """Bytes for some answers, and a number of pulls, for ranges of 2, 2 and 20 messages."""
    client = LockstepClient(at_most(1))
    hint = client.pull_hints.of(QUEUE, selector)
    hint.stride, hint.answer_bytes = 1, MIN_RECORD_SIZE
    ranges = [OffsetRange(QUEUE, start, start + count) for start, count in ((0, 2), (100, 2), (200, 20))]
    room = answers * MIN_RECORD_SIZE
    options = ReadOptions(
        consumer_group="g", selector=selector, max_bytes_in_flight=room, pulls_in_flight=pulls
    )
    events = iter(RangeReader(client, ranges, options))
    next(events)
    assert [offset for _, offset in client.pulls] == first + then


def test_the_first_range_may_use_all_of_the_bytes() -> None:
    client = LockstepClient(at_most(1))
    hint = client.pull_hints.of(QUEUE, MessageSelector())
    hint.stride, hint.answer_bytes = 1, MIN_RECORD_SIZE
    options = ReadOptions(consumer_group="g", max_bytes_in_flight=8 * MIN_RECORD_SIZE)
    reader = RangeReader(client, [OffsetRange(QUEUE, 0, 20), OffsetRange(QUEUE, 100, 101)], options)
    next(iter(reader))
    assert client.most_bytes == 8 * MIN_RECORD_SIZE
    assert [offset for _, offset in client.pulls] == list(range(16))


def test_small_messages_use_all_of_the_depth() -> None:
    client = LockstepClient(at_most(32))
    read(client, 64_000)
    client.trips = 0
    read(client, 32 * 32)
    assert client.trips == 1


# --- patience -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["lost", "refused", "refused, then lost"])
def test_slow_user_code_is_no_stall(how: str) -> None:
    """Failures far apart, some of which come with messages that the user works on for long."""
    failures: list[str] = []
    failed: list[int] = []

    def script(addr: str, offset: int, asked: int) -> Answer:
        if offset % 640 == 320 and failed.count(offset) < len(how.split(", then ")):
            failed.append(offset)
            failures.append(how.split(", then ")[failed.count(offset) - 1])
            if failures[-1] == "lost":
                raise ConnectError("the connection broke", addr=addr)
            return Answer(offset, code=ResponseCode.SERVICE_NOT_AVAILABLE, remark="shutting down")
        return found(offset, min(32, asked))

    client = LockstepClient(script)

    def work() -> None:
        client.manual_clock.now_s += 600

    assert covered(read(client, 6_400, meanwhile=work)) == list(range(6_400))
    assert set(failures) == set(how.split(", then "))


def test_only_misses_of_the_master_are_timed() -> None:
    """A slave that lags, then a master that was away for long and is still building its index."""
    client = LockstepClient(lambda *_: Answer(0), slave=True)
    back_at = client.manual_clock.now_s + 40
    misses = 0

    def script(addr: str, offset: int, asked: int) -> Answer:
        nonlocal misses
        client.down = () if client.manual_clock.now_s >= back_at else (MASTER,)
        if offset >= 100 and (addr == SLAVE or misses < 3):
            misses += addr == MASTER
            return Answer(offset, code=NOTHING, remark="OFFSET_OVERFLOW_ONE", max_offset=100)
        return found(offset, min(asked, 100 - offset if addr == SLAVE else 32))

    client.script, client.down = script, (MASTER,)
    assert covered(read(client, 200, fail_on_data_loss=False)) == list(range(200))
    assert (misses, client.lost) == (3, [])


@pytest.mark.parametrize("how", ["no connection", "an error"])
def test_an_absence_between_two_misses_starts_the_clock_again(how: str) -> None:
    client = LockstepClient(lambda *_: Answer(0))
    misses: list[float] = []

    def script(addr: str, offset: int, asked: int) -> Answer:
        if len(misses) < 2:
            misses.append(client.manual_clock.now_s)
            if len(misses) == 2:
                client.manual_clock.now_s += 60
                if how == "an error":
                    return Answer(offset, code=ResponseCode.SERVICE_NOT_AVAILABLE, remark="it starts")
                raise ConnectError("the broker restarts", addr=addr)
            return Answer(offset, code=NOTHING, remark="OFFSET_OVERFLOW_ONE")
        if len(misses) == 2:
            misses.append(client.manual_clock.now_s)
            return Answer(offset, code=NOTHING, remark="OFFSET_OVERFLOW_ONE")
        return found(offset, min(32, asked))

    client.script = script
    assert covered(read(client, 20, fail_on_data_loss=False)) == list(range(20))
    assert client.lost == []


def test_a_master_that_leaves_the_route_between_two_misses_starts_the_clock_again() -> None:
    """The slave, which lags, is all that answers meanwhile."""
    client = LockstepClient(lambda *_: Answer(0), slave=True)
    both, began_s = client.addresses, client.manual_clock.now_s
    misses = {MASTER: 0, SLAVE: 0}

    def script(addr: str, offset: int, asked: int) -> Answer:
        if misses[MASTER] and client.manual_clock.now_s < began_s + 60:
            client.addresses = {1: SLAVE}
        else:
            client.addresses = both
        if addr == SLAVE or misses[MASTER] < 2:
            misses[addr] += 1
            return Answer(offset, code=NOTHING, remark="OFFSET_OVERFLOW_ONE")
        return found(offset, min(32, asked))

    client.script = script
    assert covered(read(client, 20, fail_on_data_loss=False)) == list(range(20))
    assert client.lost == []
    assert misses[MASTER] == 2
    assert misses[SLAVE] > 10


@pytest.mark.parametrize("slave", [False, True])
@pytest.mark.parametrize("code", [NOTHING, MOVED])
def test_a_master_without_the_messages_is_believed_after_a_while(code: int, slave: bool) -> None:
    client = LockstepClient(
        lambda addr, offset, asked: (
            found(offset, min(asked, 50 - offset))
            if offset < 50
            else Answer(50, code=code, remark="OFFSET_OVERFLOW_BADLY", max_offset=50)
        ),
        slave=slave,
    )
    started = client.manual_clock.now_s
    assert covered(read(client, 100, fail_on_data_loss=False)) == list(range(50))
    assert client.lost == [("orders@broker-a:0[50, 100)", "OFFSET_WENT_BACK")]
    assert 10 <= client.manual_clock.now_s - started < 20


@pytest.mark.parametrize(
    "word",
    [
        pytest.param(lambda offset: Answer(400, code=MOVED, remark="OFFSET_TOO_SMALL"), id="begins later"),
        pytest.param(lambda offset: Answer(0, code=MOVED, remark="OFFSET_OVERFLOW_BADLY"), id="ends before"),
        pytest.param(lambda offset: Answer(offset + 9, code=NOTHING, remark="OFFSET_FOUND_NULL"), id="jumps"),
        pytest.param(
            lambda offset: Answer(offset + 9, code=RETRY, remark="MESSAGE_WAS_REMOVING"), id="removed them"
        ),
        pytest.param(lambda offset: Answer(offset, code=RETRY, remark="OFFSET_TOO_SMALL"), id="repeats"),
        pytest.param(lambda offset: Answer(0, code=ResponseCode.TOPIC_NOT_EXIST), id="no topic"),
        pytest.param(lambda offset: Answer(offset + 2, found(offset + 1, 1).records), id="has a hole"),
    ],
)
@pytest.mark.parametrize("patience_ms", [0, 10_000])
def test_a_slave_decides_nothing(
    word: Callable[[int], Answer], patience_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_rocketmq.client.read.pull_answer.has_natural_holes", lambda *_: False)
    client = LockstepClient(lambda *_: Answer(0), slave=True)
    back_at = client.manual_clock.now_s + 40

    def script(addr: str, offset: int, asked: int) -> Answer:
        client.down = () if client.manual_clock.now_s >= back_at else (MASTER,)
        return word(offset) if addr == SLAVE else found(offset, min(32, asked))

    client.script, client.down = script, (MASTER,)
    chunks = read(client, 500, fail_on_data_loss=False, missing_patience_ms=patience_ms)
    assert covered(chunks) == list(range(500))
    assert client.lost == []


def test_a_master_that_failed_once_is_asked_again_after_progress() -> None:
    """Else one lost connection would send the rest of a range to slaves, which may lag."""
    other_slave = "10.0.0.3:10911"
    client = LockstepClient(lambda *_: Answer(0), slave=True)
    client.addresses = {**client.addresses, 2: other_slave}
    lost: list[str] = []

    def script(addr: str, offset: int, asked: int) -> Answer:
        if (addr, len(lost)) == (MASTER, 0) or (addr, len(lost), offset >= 320) == (SLAVE, 1, True):
            lost.append(addr)
            raise ConnectError("the connection broke", addr=addr)
        return found(offset, min(32, asked))

    client.script = script
    assert covered(read(client, 6_400)) == list(range(6_400))
    assert lost == [MASTER, SLAVE]
    assert other_slave not in {addr for addr, _ in client.pulls}
    assert client.pulls[-1][0] == MASTER


# --- answers --------------------------------------------------------------------------------


def test_an_answer_that_does_not_advance_is_an_error() -> None:
    def script(addr: str, offset: int, asked: int) -> Answer:
        return Answer(min(offset, 64), found(offset, 32).records) if offset >= 64 else found(offset, 32)

    client = LockstepClient(script)
    with pytest.raises(RemoteProtocolError, match="does not follow them") as caught:
        read(client, 200)
    assert caught.value.facts["offset"] == 64
    assert len(client.pulls) < 50


@pytest.mark.parametrize("remark", ["OFFSET_FOUND_NULL", "MESSAGE_WAS_REMOVING"])
@pytest.mark.parametrize(
    "selector", [MessageSelector(), MessageSelector.by_tag("a")], ids=["all", "filtered"]
)
def test_a_jump_of_the_master_is_a_loss(
    remark: str, selector: MessageSelector, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = NOTHING if remark == "OFFSET_FOUND_NULL" else RETRY

    def script(addr: str, offset: int, asked: int) -> Answer:
        if 100 <= offset < 1_000:
            return Answer(1_000, code=code, remark=remark)
        return found(offset, min(32, asked, 100 - offset if offset < 100 else 32))

    monkeypatch.setattr("pyspark_rocketmq.client.read.pull_answer.has_natural_holes", lambda *_: False)
    client = LockstepClient(script)
    with pytest.raises(DataLossError, match="900 messages cannot be read: the broker has deleted") as caught:
        read(client, 1_200, selector=selector)
    assert caught.value.condition == "OFFSETS_EXPIRED"
    client = LockstepClient(script)
    there = covered(read(client, 1_200, selector=selector, fail_on_data_loss=False))
    assert there == [*range(100), *range(1_000, 1_200)]
    assert client.lost == [("orders@broker-a:0[100, 1000)", "OFFSETS_EXPIRED")]
