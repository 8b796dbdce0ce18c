"""Ranges of a topic on the command line: by time, offset and content, as files, and into other clusters."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support.cli import CommandLine
from tests.support.committed_query import Query
from tests.support.patient import patient_producer
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, OutgoingMessage
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.model import Message, MessageQueue, OffsetRange
from pyspark_rocketmq.record.properties import PROPERTY_SHARDING_KEY, RESERVED_PROPERTIES
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import MockBroker, MockCluster, Refuse, Silence
from pyspark_rocketmq.tools.transfer import sending
from pyspark_rocketmq.tools.transfer.message_files import FileMessage


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker({"orders": 2}) as broker:
        yield broker


@pytest.fixture
def other() -> Iterator[MockCluster]:
    with MockCluster({"copy": 2, "narrow": 1, "wide": 5}, brokers=("broker-z",)) as cluster:
        yield cluster


@pytest.fixture
def cli(capsys, monkeypatch, mq) -> CommandLine:
    return CommandLine(capsys, monkeypatch, mq.name_server)


def stored(name_server: str, topic: str) -> dict[int, list[Message]]:
    """Return the messages of each queue, in their order."""
    found: dict[int, list[Message]] = defaultdict(list)
    with Client(name_server) as client:
        ends = client.max_offsets(client.read_queues(topic))
        ranges = [OffsetRange(queue, 0, end) for queue, end in ends.items() if end]
        for message in read_messages(client, ranges, ReadOptions(consumer_group="g")):
            found[message.queue_id].append(message)
    return found


@pytest.fixture
def ten(mq: MockBroker) -> list[Message]:
    """Send ten messages, in turn to two queues; return them as they are stored."""
    with Client(mq.name_server) as client, patient_producer(client) as producer:
        for at in range(10):
            message = OutgoingMessage(
                "orders",
                f"order {at}".encode() if at != 7 else b"\xff\x00\xfe",
                tags="odd" if at % 2 else "even",
                keys=[f"k{at}", "all"],
                properties={"own": f"größer {at}"},
                flag=at,
                sharding_key=f"s{at % 2}",
            )
            producer.send(message, MessageQueue("orders", "broker-a", at % 2))
    queues = stored(mq.name_server, "orders")
    return [queues[at % 2][at // 2] for at in range(10)]


# --- consume ---


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (("--from", "offset:3"), [6, 8, None, 9]),
        (("--until", "offset:1"), [0, 1]),
        (("--from", "offset:1", "--until", "offset:2"), [2, 3]),
        (("--queue", "broker-a:1", "--from", "offset:1", "--until", "offset:3"), [3, 5]),
        (("--from", "offset:99"), []),
        (("--from", "last:2", "--until", "last:1"), [6, None]),
        (("--until", '{"orders": {"broker-a": {"0": 1, "1": 2}}}'), [0, 1, 3]),
        (("--until", "latest", "--tags", "even"), [0, 2, 4, 6, 8]),
        (("--until", "-1h"), []),
        (("--from", "-1h", "--until", "now"), [0, 2, 4, 6, 8, 1, 3, 5, None, 9]),
    ],
)
def test_a_range_is_consumed(cli, ten, arguments, numbers):
    done = cli("consume", "orders", *arguments)
    assert done.code == 0, done.err
    expected = ["ff 00 fe" if at is None else f"order {at}" for at in numbers]
    assert done.out.splitlines() == expected


def test_a_time_ends_where_the_first_later_message_is(cli, ten):
    moment = str(ten[5].store_timestamp)
    before = [each for each in ten if each.store_timestamp < ten[5].store_timestamp]
    lines = cli("consume", "orders", "--until", moment, "--json").out.splitlines()
    assert {json.loads(line)["msgId"] for line in lines} == {each.msg_id for each in before}


def test_following_ends_at_the_bound(cli, ten):
    done = cli("consume", "orders", "--follow", "--until", "offset:5")
    assert len(done.out.splitlines()) == 10
    assert len(cli("consume", "orders", "--follow", "--until", "now").out.splitlines()) == 10


def test_following_waits_for_an_offset_that_is_not_written_yet(cli, ten, mq, monkeypatch):
    def send_more(_: object, seconds: float) -> None:
        mq.send(OutgoingMessage("orders", b"late"))

    monkeypatch.setattr(type(SYSTEM_CLOCK), "sleep", send_more)
    done = cli("consume", "orders", "--queue", "broker-a:0", "--follow", "--until", "offset:7")
    assert done.out.splitlines() == ["order 0", "order 2", "order 4", "order 6", "order 8", "late", "late"]


@pytest.fixture
def follow(cli, monkeypatch):
    """Follow a topic, with calls in place of the waits. The routes are always asked for again."""

    def run(*arguments: str, then: Iterable[Callable[[], object]]) -> Any:
        calls, deadline = iter(then), time.monotonic() + 30

        def wait(_: object, seconds: float) -> None:
            assert time.monotonic() < deadline, "nothing more is read"
            next(calls, lambda: None)()

        monkeypatch.setattr(type(SYSTEM_CLOCK), "sleep", wait)
        return cli("consume", "orders", "--follow", *arguments, "-o", "routeRefreshMs=1")

    return run


def test_following_reads_queues_that_are_added(follow, ten, mq):
    def grow() -> None:
        mq.create_topic("orders", 4)
        mq.send(OutgoingMessage("orders", b"first of a new one"), queue=MessageQueue("orders", "broker-a", 3))

    done = follow("--count", "11", then=[grow])
    assert done.out.splitlines()[10:] == ["first of a new one"]
    done = follow("--queue", "broker-a:0", "--until", "offset:5", then=[])
    assert len(done.out.splitlines()) == 5


def test_following_a_topic_that_is_created_again_ends_with_an_error(follow, ten, mq):
    def create_again() -> None:
        mq.delete_topic("orders")
        mq.create_topic("orders", 2)
        mq.send(OutgoingMessage("orders", b"new"))

    done = follow("--from", "latest", then=[create_again])
    assert (done.code, done.out) == (1, "")
    assert "was read up to 5: the topic was created again" in done.err


def test_a_start_beyond_the_end_has_no_messages_and_is_waited_for(cli, follow, ten, mq):
    queue = MessageQueue("orders", "broker-a", 0)
    start = json.dumps({"orders": {"broker-a": {"0": mq.max_offset(queue) + 1, "1": 0}}})
    given = ("--from", start, "--queue", "broker-a:0")
    done = cli("consume", "orders", *given)
    assert (done.code, done.out) == (0, "")

    def send_two() -> None:
        for body in (b"before the start", b"at the start"):
            mq.send(OutgoingMessage("orders", body), queue=queue)

    assert follow(*given, "--count", "1", then=[lambda: None, send_two]).out.splitlines() == ["at the start"]


def test_messages_of_several_producers_are_printed_without_pandas(mq):
    """PyArrow imports it within its own code, which swallows a Ctrl-C or SIGTERM that comes meanwhile."""
    times = {"born_timestamp": 1, "store_timestamp": 1}
    for port in (1, 2):
        born = f"127.0.0.1:{port}"
        mq._stores["broker-a"].append("orders", 0, b"a body", {}, sys_flag=0, flag=0, born_host=born, **times)
    code = "import sys, pyspark_rocketmq.cli as cli; cli.main(sys.argv[1:]); print('pandas' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "consume", "orders", "--namesrv", mq.name_server],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == ["a body", "a body", "False"]


def test_bodies_are_searched(cli, ten):
    done = cli("consume", "orders", "--grep", "order [28]")
    assert (done.code, done.out.splitlines()) == (0, ["order 2", "order 8"])
    assert cli("consume", "orders", "--grep", "order", "--count", "1").out == "order 0\n"
    nothing = cli("consume", "orders", "--grep", "no such order")
    assert (nothing.code, nothing.out) == (1, "")
    assert cli("consume", "orders", "--grep", r"\xff").out == "ff 00 fe\n"


def test_a_search_stops_and_says_where_to_continue(cli, ten):
    first = cli("consume", "orders", "--grep", "order [29]", "--scan", "6")
    assert (first.code, first.out) == (0, "order 2\n")
    assert first.err.startswith("searched 6 messages; to search more, continue with --from '{")
    position = first.err.partition("--from '")[2].rpartition("'")[0]
    rest = cli("consume", "orders", "--grep", "order [29]", "--from", position)
    assert (rest.code, rest.out) == (0, "order 9\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--until", "5x"), "--until takes offset:100, earliest"),
        (("--until", "offset:x"), "--until takes an offset as offset:100"),
        (("--from", "offset:"), "--from takes an offset as offset:100"),
        (("--grep", "("), "--grep takes a regular expression: "),
        (("--scan", "3"), "--scan limits --grep: give both"),
        (("--grep", "a", "--commit", "--group", "g"), "--commit would commit messages that --grep does not"),
        (("--queue", "broker-a:7"), "the topic has no such queue; it has broker-a:0, broker-a:1"),
        (("--queue", "0"), "the topic has no such queue"),
    ],
)
def test_what_makes_no_range_is_told(cli, arguments, said):
    done = cli("consume", "orders", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


# --- export and import ---


def facts(message: Message) -> tuple[Any, ...]:
    """Return what is kept of a message."""
    kept = {
        name: value
        for name, value in message.properties.items()
        if name not in RESERVED_PROPERTIES or name == PROPERTY_SHARDING_KEY
    }
    return message.body, message.tags, message.keys, message.flag, kept


@pytest.mark.parametrize("name", ["orders.parquet", "orders.jsonl"])
def test_a_topic_goes_to_another_cluster_as_it_was(cli, mq, other, ten, tmp_path, name):
    file = str(tmp_path / name)
    done = cli("export", "orders", "--file", file, "--json")
    assert done.json() == {"topic": "orders", "exported": 10, "file": file}
    assert [path.name for path in tmp_path.iterdir()] == [name]
    into = ("import", "copy", "--file", file, "-n", other.name_server)
    dry = cli(*into)
    assert (dry.code, "10 messages to send: send them with --yes" in dry.out) == (0, True)
    assert stored(other.name_server, "copy") == {}
    done = cli(*into, "--yes", "--json")
    assert done.json() == {"topic": "copy", "found": 10, "sent": 10}
    before, after = stored(mq.name_server, "orders"), stored(other.name_server, "copy")
    assert {at: [*map(facts, each)] for at, each in after.items()} == {
        at: [*map(facts, each)] for at, each in before.items()
    }
    assert {each.msg_id for each in after[0]}.isdisjoint(each.msg_id for each in before[0])


@pytest.mark.parametrize(("topic", "used"), [("narrow", {0}), ("wide", {0, 1})])
def test_other_numbers_of_queues_keep_the_order_of_each(cli, mq, other, ten, tmp_path, topic, used):
    file = str(tmp_path / "orders.jsonl")
    assert cli("export", "orders", "--file", file).code == 0
    assert cli("import", topic, "--file", file, "-n", other.name_server, "--yes").code == 0
    after = stored(other.name_server, topic)
    assert after.keys() == used
    for numbers in ([0, 2, 4, 6, 8], [1, 3, 5, 7, 9]):
        flags = [each.flag for queue in after.values() for each in queue if each.flag in numbers]
        assert flags == numbers


def test_a_range_goes_through_a_pipe(cli, mq, other, ten):
    done = cli("export", "orders", "--from", "offset:1", "--until", "offset:2", "--tags", "odd")
    assert done.err == "1 messages of orders exported\n"
    (line,) = done.out.splitlines()
    assert json.loads(line)["body"] == "order 3"
    sent = cli("import", "copy", "-n", other.name_server, "--yes", "--rate", "1000", given=done.out)
    assert "1 messages sent to copy" in sent.out
    ((message,),) = stored(other.name_server, "copy").values()
    assert message.body == b"order 3"


def test_parquet_has_the_columns_of_the_data_source(cli, ten, tmp_path):
    file = tmp_path / "x"
    cli("export", "orders", "--file", str(file), "--format", "parquet", "--queue", "broker-a:1")
    rows = pq.read_table(file).to_pylist()
    assert [row["queueOffset"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[3]["body"] == b"\xff\x00\xfe"
    assert dict(rows[0]["properties"])["own"] == "größer 1"
    assert rows[0]["storeTimestamp"].tzinfo is not None


def test_thousands_of_messages_are_sent_in_batches(cli, mq, other, tmp_path):
    lines = [
        json.dumps({"brokerName": "b", "queueId": at % 2, "queueOffset": at, "body": f"{at}" + "x" * 300})
        for at in range(4_000)
    ]
    done = cli("import", "copy", "-n", other.name_server, "--yes", "--json", given="\n".join(lines))
    assert done.json()["sent"] == 4_000
    for queue, messages in stored(other.name_server, "copy").items():
        assert [int(each.body.rstrip(b"x")) for each in messages] == list(range(queue, 4_000, 2))


@pytest.mark.parametrize(
    ("code", "arguments", "given", "said"),
    [
        (2, ("export", "orders", "--json"), "", "--json reports about a file: give --file"),
        (2, ("export", "orders", "--format", "parquet"), "", "Parquet needs a file: give --file"),
        (2, ("export", "orders", "--file", "/nowhere/x"), "", "the file cannot be written: No such file"),
        (2, ("import", "orders", "--file", "/nowhere/x"), "", "the file cannot be read: No such file"),
        (2, ("import", "orders", "--file", "/nowhere/x.parquet"), "", "the file cannot be read: "),
        (2, ("import", "orders", "--yes"), "{}\n", "it has no 'brokerName' [file=-, line=1]"),
        (1, ("import", "ordrs", "--yes"), "", "the topic does not exist"),
    ],
)
def test_what_cannot_be_transferred_is_told_before_anything_is_sent(cli, mq, code, arguments, given, said):
    done = cli(*arguments, given=given)
    assert (done.code, said in done.err) == (code, True), done.err
    assert stored(mq.name_server, "orders") == {}


def test_a_line_at_the_end_that_is_no_message_is_found_first(cli, other, ten, tmp_path: Path):
    file = tmp_path / "orders.jsonl"
    cli("export", "orders", "--file", str(file))
    file.write_text(file.read_text() + "{}\n")
    done = cli("import", "copy", "--file", str(file), "-n", other.name_server, "--yes")
    assert (done.code, "line=11" in done.err) == (2, True)
    assert stored(other.name_server, "copy") == {}


def test_a_pipe_that_is_named_is_read_once(cli, other, ten):
    reading, writing = os.pipe()
    os.write(writing, cli("export", "orders").out.encode())
    os.close(writing)
    file = f"/dev/fd/{reading}"
    done = cli("import", "copy", "--file", file, "-n", other.name_server, "--yes", "--json")
    os.close(reading)
    assert done.json() == {"topic": "copy", "found": 10, "sent": 10}


def test_an_import_that_fails_says_how_many_messages_were_sent(cli, other, ten, tmp_path):
    file = tmp_path / "orders.jsonl"
    cli("export", "orders", "--file", str(file))
    sends = {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
    other.inject(Refuse(ResponseCode.MESSAGE_ILLEGAL), on=sends, after=1)
    done = cli("import", "copy", "--file", str(file), "-n", other.name_server, "--yes", "--rate", "20")
    assert done.code == 1
    assert "acknowledged=" in done.err


def test_a_file_that_becomes_shorter_is_an_error(cli, other, ten, tmp_path, monkeypatch):
    file = tmp_path / "orders.jsonl"
    cli("export", "orders", "--file", str(file))
    checked = sending.count_queues

    def check_and_cut(messages: Iterable[FileMessage]) -> dict[tuple[str, int], int]:
        found = checked(messages)
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:4]))
        return found

    monkeypatch.setattr(sending, "count_queues", check_and_cut)
    done = cli("import", "copy", "--file", str(file), "-n", other.name_server, "--yes")
    assert (done.code, "the file became shorter meanwhile" in done.err) == (2, True)


def test_a_pipe_is_written_and_not_replaced(cli, ten, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert cli("export", "orders", "--file", str(pipe)).code == 0
    lines = os.read(reading, 1 << 20).splitlines()
    os.close(reading)
    assert (len(lines), pipe.is_fifo(), len([*tmp_path.iterdir()])) == (10, True, 1)


def test_a_pipe_of_the_shell_is_written(cli, ten):
    reading, writing = os.pipe()  # as >(gzip) and /dev/stdout
    done = cli("export", "orders", "--file", f"/dev/fd/{writing}")
    os.close(writing)
    lines = os.read(reading, 1 << 20).splitlines()
    os.close(reading)
    assert (done.code, len(lines)) == (0, 10)


def test_standard_output_is_utf_8_and_its_disk_may_be_full(mq, ten, tmp_path):
    command = [sys.executable, "-m", "pyspark_rocketmq", "export", "orders", "-n", mq.name_server]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=120, check=False)
    assert (done.returncode, len(done.stdout.decode().splitlines())) == (0, 10), done.stderr
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: the file cannot be written: No space left on device")


def test_a_line_that_is_not_written_is_not_consumed(mq, ten):
    command = [sys.executable, "-m", "pyspark_rocketmq", "consume", "orders", "-n", mq.name_server]
    with Path("/dev/full").open("w") as full:
        words = [*command, "--group", "g", "--commit"]
        done = subprocess.run(words, stdout=full, timeout=120, check=False)
    assert done.returncode == 1
    with Client(mq.name_server) as client:
        assert set(client.committed_offsets("g", client.read_queues("orders")).values()) == {0}


@pytest.mark.parametrize("command", ["consume", "export"])
def test_a_named_queue_is_read_while_the_broker_of_another_is_away(capsys, monkeypatch, command: str):
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as mq:
        for queue in mq.queues("orders"):
            mq.send(OutgoingMessage("orders", b"x"), queue)
        mq.stop_broker("broker-b", unregister=False)
        cli = CommandLine(capsys, monkeypatch, mq.name_server)
        offsets = '{"orders": {"broker-a": {"0": 0}, "broker-b": {"0": 0}}}'
        for start in ("earliest", "last:1", "-1h", offsets):
            done = cli(command, "orders", "--queue", "broker-a:0", "--from", start, "--until", "latest")
            assert (done.code, len(done.out.splitlines())) == (0, 1), done


def test_an_import_that_is_interrupted_says_what_was_sent(cli, other, ten, tmp_path, monkeypatch):
    cli("export", "orders", "--file", f"{tmp_path}/it.jsonl")

    def sleep(_: object, seconds: float) -> None:
        if seconds > 450:
            raise KeyboardInterrupt

    monkeypatch.setattr(type(SYSTEM_CLOCK), "sleep", sleep)
    words = ("--file", f"{tmp_path}/it.jsonl", "--rate", "0.01", "--yes", "-n", other.name_server)
    done = cli("import", "copy", *words)
    found = re.fullmatch(r"interrupted: (\d+) messages or a few more were sent; .* again\n", done.err)
    assert (done.code, bool(found)) == (130, True), done
    assert int(found[1]) <= sum(map(len, stored(other.name_server, "copy").values())) <= 5


def test_an_export_that_is_terminated_leaves_nothing(mq, ten, tmp_path):
    mq.inject(Silence(), on=RequestCode.PULL_MESSAGE, times=None)
    command = [sys.executable, "-m", "pyspark_rocketmq", "export", "orders", "-n", mq.name_server]
    with subprocess.Popen([*command, "--file", str(tmp_path / "file")], stderr=subprocess.PIPE) as process:
        try:
            eventually(lambda: list(tmp_path.iterdir()), 30, what="a file that is being written")
            process.terminate()
            assert process.wait(60) == 130
            assert process.stderr.read() == b""
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []


def test_what_is_replaced_keeps_its_link_and_its_permissions(cli, ten, tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o600)
    link.symlink_to(file)
    assert cli("export", "orders", "--file", str(link)).code == 0
    assert (link.is_symlink(), len(file.read_text().splitlines())) == (True, 10)
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["", ".", "/", "here"])
def test_a_directory_is_no_destination(cli, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    done = cli("export", "orders", "--file", name)
    assert (done.code, "a directory cannot be written: give the name of a file" in done.err) == (2, True)


def test_lines_of_consume_are_not_imported(cli, other, ten):
    lines = cli("consume", "orders", "--json").out  # bodies are parsed, or in hexadecimal
    done = cli("import", "copy", "-n", other.name_server, "--yes", given=lines)
    assert (done.code, "`consume --json` wrote it" in done.err) == (2, True)
    assert stored(other.name_server, "copy") == {}


def test_an_infinite_rate_is_no_limit(cli, other, ten):
    lines = cli("export", "orders").out
    done = cli("import", "copy", "-n", other.name_server, "--yes", "--rate", "inf", given=lines)
    assert "10 messages sent" in done.out


# --- rows of transactional writes ---


@pytest.fixture
def written(mq: MockBroker) -> None:
    """Commit a batch after a failed attempt, beside an ordinary message, and leave one open."""
    mq.create_topic("orders-commits", 1)
    with Client(mq.name_server) as client, patient_producer(client) as producer:
        query = Query(mq.name_server, client)
        query.write(1, "failed", "also failed")
        query.run(1, *"abcd")
        producer.send(OutgoingMessage("orders", b"plain"))
        query.write(2, "open")


def test_only_committed_rows_are_exported(cli, written, tmp_path: Path) -> None:
    lines = [
        json.loads(line) for line in cli("export", "orders", "--isolation", "read_committed").out.splitlines()
    ]
    assert sorted(line["body"] for line in lines) == [*"abcd", "plain"]
    assert [(line["queueId"], line["queueOffset"]) for line in lines] == sorted(
        (line["queueId"], line["queueOffset"]) for line in lines
    )
    done = cli(
        "export", "orders", "--isolation", "read_committed", "--file", f"{tmp_path}/it.parquet", "--json"
    )
    assert done.json()["exported"] == pq.read_metadata(tmp_path / "it.parquet").num_rows == 5
    assert len(cli("export", "orders").out.splitlines()) == 8, "all messages, unless they are asked for"


def test_only_committed_rows_are_consumed(cli, written) -> None:
    def consume(*arguments: str) -> list[str]:
        return sorted(cli("consume", "orders", "--isolation", "read_committed", *arguments).out.splitlines())

    assert consume() == [*"abcd", "plain"]
    assert consume("--commit-topic", "orders-commits", "--grep", "[ab]") == ["a", "b", "plain"]
    queues = [consume("--queue", f"broker-a:{queue_id}") for queue_id in range(2)]
    assert sorted(queues[0] + queues[1]) == consume()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("consume", "orders", "--isolation", "read_committed", "--follow"), "--follow goes by offsets"),
        (
            ("consume", "orders", "--isolation", "read_committed", "--commit", "--group", "g"),
            "--commit goes by offsets",
        ),
        (("export", "orders", "--commit-topic", "other"), "--commit-topic needs --isolation read_committed"),
        (
            ("export", "orders", "--isolation", "read_committed", "--commit-topic", "other"),
            "the commit topic other does not exist",
        ),
        (("export", "orders", "--isolation", "serializable"), "'read_uncommitted', 'read_committed'"),
    ],
)
def test_what_isolation_cannot_be_is_told(cli, written, arguments, said) -> None:
    done = cli(*arguments)
    assert done.code
    assert said in done.err


def test_committed_rows_that_cannot_be_read_are_no_whole_file(
    cli, mq, written, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(
        "pyspark_rocketmq.client.send.readable.wait_until_readable", lambda *given, **more: False
    )
    done = cli("export", "orders", "--isolation", "read_committed", "--file", f"{tmp_path}/it.jsonl")
    assert done.code
    assert "not all committed rows can be read now" in done.err
    assert not [*tmp_path.iterdir()]
