from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client.groups.push_options import ConsumeFromWhere, PushOptions
from pyspark_rocketmq.client.groups.push_progress import (
    FileProgress,
    GroupProgress,
    OwnCommits,
    StartOffsets,
    starting_offsets,
)
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.errors import BrokerNotFoundError, OptionError, RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.template import Request

ONE, TWO = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
OTHER, AGAIN = MessageQueue("orders", "broker-b", 0), MessageQueue("%RETRY%g", "broker-a", 0)


def test_offsets_come_back_from_the_file(tmp_path):
    path = tmp_path / "offsets.json"
    progress = FileProgress(path)
    assert progress.read([ONE]) == {ONE: None}
    progress.write({ONE: 5})
    progress.write({TWO: 7})
    assert FileProgress(path).read([ONE, TWO]) == {ONE: 5, TWO: 7}
    assert [file.name for file in tmp_path.iterdir()] == ["offsets.json"]


def test_a_write_that_is_cut_off_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path, write_text = tmp_path / "offsets.json", Path.write_text
    progress = FileProgress(path)
    progress.write({ONE: 5})

    def cut_off(file: Path, text: str, **how: str) -> None:
        write_text(file, text[:10], **how)
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_text", cut_off)
    with pytest.raises(RocketMQError, match="no space"):
        progress.write({ONE: 6})
    assert FileProgress(path).read([ONE]) == {ONE: 5}


def test_without_a_file_they_are_in_memory_only():
    progress = FileProgress(None)
    progress.write({ONE: 5})
    assert progress.read([ONE, TWO]) == {ONE: 5, TWO: None}


def test_a_member_has_read_a_topic_if_one_of_its_queues_has_an_offset(tmp_path):
    progress = FileProgress(tmp_path / "offsets.json")
    assert not progress.reads([ONE, TWO])
    progress.write({TWO: 0})
    assert progress.reads([ONE, TWO])
    assert not progress.reads([ONE])


def test_the_file_is_text_that_says_where_each_queue_is(tmp_path):
    path = tmp_path / "offsets.json"
    FileProgress(path).write({MessageQueue("bestellungen-ü", "b", 3): 2**40, TWO: 7})
    rows = [["bestellungen-ü", "b", 3, 2**40], ["orders", "broker-a", 1, 7]]
    assert json.loads(path.read_bytes()) == {"offsets": rows}
    path.write_text('{"offsets": [["bestellungen-ü", "b", "3", "9"]]}', encoding="utf-8")
    assert FileProgress(path).read([MessageQueue("bestellungen-ü", "b", 3)]) == {
        MessageQueue("bestellungen-ü", "b", 3): 9
    }


@pytest.mark.parametrize("text", ["", "[]", '{"offsets": [[1]]}', '{"other": 1}'])
def test_another_file_is_refused(tmp_path, text: str):
    path = tmp_path / "offsets.json"
    path.write_text(text)
    with pytest.raises(OptionError, match="does not hold a member's offsets"):
        FileProgress(path)


class Brokers:
    """Queues from 10 to 90; what is behind moment m begins at m."""

    clock = FakeClock(0.04 + 30 * 60)

    def min_offsets(self, queues):
        return dict.fromkeys(queues, 10)

    def max_offsets(self, queues):
        return dict.fromkeys(queues, 90)

    def offsets_at(self, timestamps, **_):
        return dict(timestamps)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (PushOptions(), 90),
        (PushOptions(start=ConsumeFromWhere.FIRST_OFFSET), 10),
        (PushOptions(start=ConsumeFromWhere.TIMESTAMP, timestamp_ms=33), 33),
        (PushOptions(start=ConsumeFromWhere.TIMESTAMP), 40),
    ],
)
def test_where_a_queue_begins(options, expected: int):
    progress = FileProgress(None)
    progress.write({ONE: 55})
    begins = starting_offsets(Brokers(), progress, [ONE, TWO, AGAIN], options, "g")
    assert begins == {ONE: 55, TWO: expected, AGAIN: 10}, "what comes again is read from its begin"


def start_offsets(progress: FileProgress, **options: object) -> StartOffsets:
    client = Brokers()
    client.clock = FakeClock(0.04 + 30 * 60)
    starts = StartOffsets(client, progress, PushOptions(**options), "g")
    client.clock.now_s += 60
    return starts


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 90),
        ({"start": ConsumeFromWhere.FIRST_OFFSET}, 10),
        ({"start": ConsumeFromWhere.TIMESTAMP, "timestamp_ms": 33}, 33),
        pytest.param({"start": ConsumeFromWhere.TIMESTAMP}, 40, id="counted from the member's start"),
    ],
)
def test_queues_of_a_group_that_starts_begin_where_it_is_told(options, expected: int):
    starts = start_offsets(FileProgress(None), **options)
    starts.record_queues("orders", [ONE])
    given = options.get("timestamp_ms")
    assert starts.offsets([ONE, TWO]) == {ONE: expected, TWO: given or 10}, (
        "a queue that is new is read whole"
    )


@pytest.mark.parametrize("start", list(ConsumeFromWhere))
def test_queues_without_an_offset_of_a_group_that_has_read_the_topic_are_read_whole(start):
    progress = FileProgress(None)
    progress.write({ONE: 55})
    starts = start_offsets(progress, start=start)
    starts.record_queues("orders", [ONE, TWO])
    assert starts.offsets([ONE, TWO]) == {ONE: 55, TWO: 10}


def test_a_topic_that_was_not_there_at_the_start_is_read_whole():
    assert start_offsets(FileProgress(None)).offsets([ONE, TWO]) == {ONE: 10, TWO: 10}


def test_who_reads_from_the_first_message_asks_no_broker_whether_the_group_has_read():
    brokers = CommittedAt({})
    brokers.clock = FakeClock()
    options = PushOptions(start=ConsumeFromWhere.FIRST_OFFSET)
    StartOffsets(brokers, GroupProgress(brokers, "g"), options, "g").record_queues("orders", [ONE, TWO])
    assert brokers.asked == []


def test_a_time_is_looked_up_for_the_group():
    """A proxy may ask on behalf of the group only."""
    groups: list[str] = []

    class Noting(Brokers):
        def offsets_at(self, timestamps, *, group: str):
            groups.append(group)
            return dict(timestamps)

    options = PushOptions(start=ConsumeFromWhere.TIMESTAMP, timestamp_ms=33)
    starts = StartOffsets(Noting(), FileProgress(None), options, "billing")
    assert starts.offsets([ONE]) == {ONE: 33}
    assert groups == ["billing"]


def test_a_queue_that_was_released_continues_where_the_member_was_unless_an_offset_is_stored():
    progress = FileProgress(None)
    starts = start_offsets(progress)
    starts.record_queues("orders", [ONE, TWO])
    starts.record_position(ONE, 70)
    starts.record_position(TWO, 71)
    progress.write({TWO: 60})
    assert starts.offsets([ONE, TWO]) == {ONE: 70, TWO: 60}


class CommittedAt:
    """Brokers of some versions, with the group's offsets; requests are answered in the order they came."""

    def __init__(self, offsets: dict[MessageQueue, int | None], *, version: int = 413) -> None:
        self.offsets = offsets
        self.version = version
        self.owner: dict[MessageQueue, str] = {}
        self.requests: list[Request] = []
        self.down: set[str] = set()
        self.asked: list[set[MessageQueue]] = []
        self.clock = FakeClock()

    def owners(self, queues):
        return {queue: self.owner.get(queue) for queue in queues}

    def committed_offsets(self, group: str, queues):
        assert group == "g"
        return {queue: self.offsets.get(queue) for queue in queues}

    def ask(self, calls: dict[MessageQueue, Call]):
        for call in calls.values():
            call.before_send()
        self.asked.append(set(calls))
        self.requests += [call.request for call in calls.values()]
        for queue in calls:
            if queue.broker_name in self.down:
                raise BrokerNotFoundError("it is down", broker_name=queue.broker_name)
        return {queue: call.parse(self._answer(self.offsets.get(queue))) for queue, call in calls.items()}

    def _answer(self, offset: int | None) -> Response:
        code = ResponseCode.QUERY_NOT_FOUND if offset is None else ResponseCode.SUCCESS
        fields = {} if offset is None else {"offset": str(offset)}
        command = Command(code=code, opaque=0, flag=1, version=self.version, fields=fields)
        return Response(command, "10.0.0.1:10911", bytearray(), 0, 0)


@pytest.mark.parametrize(
    ("offset", "version", "reads"),
    [
        (None, 413, False),
        (-1, 413, False),
        (0, 413, True),
        (7, 413, True),
        pytest.param(0, 412, False, id="before 5.0, 0 may be the answer for no offset"),
        (1, 412, True),
    ],
)
def test_whether_a_group_has_read_a_topic(offset: int | None, version: int, reads: bool):
    brokers = CommittedAt({TWO: offset}, version=version)
    assert GroupProgress(brokers, "g").reads([ONE, TWO]) is reads


def test_a_broker_that_is_down_does_not_hide_what_another_one_knows():
    brokers = CommittedAt({OTHER: 5, ONE: 5})
    brokers.down = {"broker-a"}
    assert GroupProgress(brokers, "g").reads([ONE, TWO, OTHER])
    assert brokers.asked == [{ONE, TWO}, {OTHER}]
    assert not GroupProgress(brokers, "g").reads([ONE, TWO])


def test_the_first_commit_of_a_topic_at_a_broker_goes_ahead():
    brokers = CommittedAt(dict.fromkeys([ONE, TWO, OTHER], 0))
    progress = GroupProgress(brokers, "g")
    progress.write({ONE: 1, TWO: 2, OTHER: 3})
    ahead, rest = brokers.asked
    assert len(ahead) == 2
    assert OTHER in ahead
    assert ahead | rest == {ONE, TWO, OTHER}
    assert not ahead & rest
    progress.write({ONE: 2, TWO: 3, OTHER: 4})
    assert brokers.asked[2:] == [set(), {ONE, TWO, OTHER}]


def test_the_group_s_offsets_are_those_of_the_brokers():
    brokers = CommittedAt({ONE: 5})
    progress = GroupProgress(brokers, "g")
    assert progress.read([ONE, TWO]) == {ONE: 5, TWO: None}
    brokers.offsets = {ONE: 5, TWO: 5}
    progress.write({ONE: 6, TWO: 7})
    assert sorted((r.consumer_group, r.topic, r.queue_id, r.commit_offset) for r in brokers.requests) == [
        ("g", "orders", 0, 6),
        ("g", "orders", 1, 7),
    ]
    brokers.requests.clear()
    progress.reads([TWO])
    assert [(r.consumer_group, r.topic, r.queue_id) for r in brokers.requests] == [("g", "orders", 1)]


def test_a_member_that_was_frozen_within_the_first_commit_sends_no_others() -> None:
    """Another member may have committed in their queues meanwhile."""
    brokers = CommittedAt(dict.fromkeys([ONE, TWO], 0))
    ask = brokers.ask

    def ask_slowly(calls):
        ask(calls)
        brokers.clock.sleep(6)

    brokers.ask = ask_slowly
    progress = GroupProgress(brokers, "g")
    with pytest.raises(RocketMQError, match="are 6 s old, and are not sent"):
        progress.write({ONE: 1, TWO: 2})
    assert len(brokers.asked) == 1
    brokers.ask = ask
    progress.write({ONE: 1, TWO: 2})
    assert brokers.asked[1:] == [set(), {ONE, TWO}]


def test_a_static_topic_s_first_commit_goes_ahead_at_each_broker_that_has_queues_of_it():
    queues = [MessageQueue("orders", "__syslo__global__", number) for number in range(4)]
    brokers = CommittedAt(dict.fromkeys(queues, 0))
    brokers.owner = dict(zip(queues, ["broker-a", "broker-a", "broker-b", "broker-b"], strict=True))
    progress = GroupProgress(brokers, "g")
    progress.write(dict.fromkeys(queues, 1))
    ahead, rest = brokers.asked
    assert {brokers.owner[queue] for queue in ahead} == {"broker-a", "broker-b"}
    assert (len(ahead), ahead | rest) == (2, set(queues))
    brokers.owner = dict.fromkeys(queues, "broker-c")  # where it moves, it is the first one again
    progress.write(dict.fromkeys(queues, 2))
    assert [len(asked) for asked in brokers.asked[2:]] == [1, 3]


def test_the_first_commits_of_two_topics_go_ahead_together():
    brokers = CommittedAt(dict.fromkeys([ONE, TWO, AGAIN], 0))
    GroupProgress(brokers, "g").write({ONE: 1, TWO: 2, AGAIN: 3})
    ahead, rest = brokers.asked
    assert (len(ahead), len(rest)) == (2, 1)
    assert AGAIN in ahead


def test_a_topic_s_commits_are_not_first_ones_again_after_those_of_another_topic():
    brokers = CommittedAt(dict.fromkeys([ONE, TWO, AGAIN], 0))
    progress = GroupProgress(brokers, "g")
    progress.write({ONE: 1})
    progress.write({AGAIN: 1})
    progress.write({ONE: 2, TWO: 2})
    assert brokers.asked[4:] == [set(), {ONE, TWO}]


def test_a_first_commit_that_fails_goes_ahead_again():
    brokers = CommittedAt(dict.fromkeys([ONE, TWO], 0))
    brokers.down = {"broker-a"}
    progress = GroupProgress(brokers, "g")
    for _ in range(2):
        with pytest.raises(BrokerNotFoundError):
            progress.write({ONE: 1, TWO: 2})
    brokers.down = set()
    progress.write({ONE: 1, TWO: 2})
    assert [len(each) for each in brokers.asked] == [1, 1, 1, 1]


def test_a_file_that_cannot_be_written_is_told_before_the_member_reads(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"offsets cannot be kept there: .*No such file") as caught:
        FileProgress(tmp_path / "no-folder" / "member.json")
    assert caught.value.facts["path"] == tmp_path / "no-folder" / "member.json"


def test_a_folder_that_goes_away_is_an_error_that_a_lane_retries(tmp_path: Path) -> None:
    folder = tmp_path / "member"
    folder.mkdir()
    progress = FileProgress(folder / "offsets.json")
    (folder / "offsets.json").unlink()
    folder.rmdir()
    with pytest.raises(RocketMQError, match="a member's offsets cannot be kept"):
        progress.write({ONE: 5})
    folder.mkdir()
    progress.write({})
    assert FileProgress(folder / "offsets.json").read([ONE]) == {ONE: 5}


class Unanswered:
    """Offsets at a broker that stores what it is sent, and whose answers are lost."""

    def __init__(self) -> None:
        self.stored: dict[MessageQueue, int | None] = {}

    def read(self, queues):
        return {queue: self.stored.get(queue) for queue in queues}

    def write(self, offsets):
        self.stored |= offsets
        raise RocketMQError("no answer")


@pytest.mark.parametrize("left", [False, True])
def test_a_commit_without_an_answer_is_this_members_until_it_leaves_the_queue(left: bool):
    """What another member commits later may be the same offset."""
    queue = MessageQueue("orders", "broker-a", 0)
    commits = OwnCommits(Unanswered())
    with pytest.raises(RocketMQError):
        commits.write({queue: 7})
    if left:
        commits.forget(queue)
    commits.doubted.add(queue)
    assert commits.find_lost([queue]) == ({queue} if left else set())
    assert not commits.doubted
