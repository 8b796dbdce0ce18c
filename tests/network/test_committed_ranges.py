"""Transactional writes that are committed by ranges: readers see a batch whole, or nothing of it."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.committed_query import LOG, Query, committed_cluster, send
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, OutgoingMessage, Producer
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.commits import commit_log
from pyspark_rocketmq.client.commits.commit_log import Committed, read_committed
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches, read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.dstream import LocationStrategies, rdd
from pyspark_rocketmq.errors import BrokerNotFoundError, DataLossError, OptionError, RemoteProtocolError
from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.model.nested_offsets import nest
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.planning.commits import visible
from pyspark_rocketmq.planning.commits.records import Ranges
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.spark.features import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark_rocketmq.spark.read.committed import CommittedBatchReader, CommittedStreamReader
from pyspark_rocketmq.spark.read.schema import read_schema, to_projection
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader
from pyspark_rocketmq.spark.write.transaction_log import TransactionName
from pyspark_rocketmq.testing import MockCluster

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with committed_cluster() as cluster:
        yield cluster


@pytest.fixture
def query(mq: MockCluster, client: Client) -> Query:
    return Query(mq.name_server, client)


def source(mq: MockCluster, where: Any = "readStream", **given: str) -> SourceOptions:
    settings = {"nameServer": mq.name_server, "isolation": "read_committed", "routeRefreshMs": "200"}
    if "subscribePattern" not in given:
        settings["topic"] = "orders"
    if where == "readStream":
        settings["startingOffsets"] = "earliest"
    return parse_options(SourceOptions, settings | given, where=where, environ={})


def rows_of(reader: Any, partitions: Any) -> list[str]:
    return [
        body.decode()
        for partition in partitions
        for batch in reader.read(partition)
        for body in batch.column("body").to_pylist()
    ]


def read_batch(mq: MockCluster, **given: str) -> Counter[str]:
    reader = CommittedBatchReader(source(mq, "read", **given), read_schema(("body",)))
    return Counter(rows_of(reader, reader.partitions()))


class Stream:
    """A query that reads, as Spark runs it."""

    def __init__(self, mq: MockCluster, **given: str) -> None:
        self._options = source(mq, **given)
        self.reader = self._open()
        self.end: dict[str, Any] = self.reader.initialOffset()
        self.batches: list[list[str]] = []
        self._last: tuple[dict[str, Any], dict[str, Any]] | None = None

    def _open(self) -> CommittedStreamReader:
        return CommittedStreamReader(self._options, read_schema(("body",)))

    def trigger(self, limit: ReadLimit | None = None) -> bool:
        """Run a micro-batch if there is one."""
        document = self.reader.latestOffset(self.end, limit or self.reader.getDefaultReadLimit())
        end = json.loads(json.dumps(document))
        if end == self.end:
            return False
        self._last = (self.end, end)
        self.batches.append(rows_of(self.reader, self.reader.partitions(self.end, end)))
        self.end = end
        return True

    def restart(self) -> None:
        """Run the last batch again, in a new process: it has the same rows."""
        self.stop()
        self.reader = self._open()
        if self._last is not None:
            again = rows_of(self.reader, self.reader.partitions(*self._last))
            assert again == self.batches[-1]

    def drain(self) -> Counter[str]:
        """Read everything; return what was read so far."""
        while self.trigger():
            pass
        return self.rows()

    def rows(self) -> Counter[str]:
        return Counter(body for batch in self.batches for body in batch)

    def stop(self) -> None:
        self.reader.stop()


@pytest.fixture
def stream(mq: MockCluster) -> Iterator[Stream]:
    stream = Stream(mq)
    yield stream
    stream.stop()


def test_a_batch_is_read_when_it_is_committed_and_not_before(mq, client, query, stream) -> None:
    send(client, "plain")
    first, second = query.write(1, "a", "b", "c", "d"), query.write(1, "e")
    assert stream.drain() == read_batch(mq) == Counter(["plain"])
    query.commit(1, first, second)
    assert read_batch(mq) == Counter([*"abcde", "plain"])
    stream.drain()
    assert [sorted(batch) for batch in stream.batches if batch] == [["plain"], [*"abcde"]]


def test_a_batch_that_comes_again_is_not_sent(mq, client, query, stream) -> None:
    query.run(1, "a", "b")
    sent = sum(mq.asked[code] for code in SENDS)
    again = Query(mq.name_server, client)
    again.commit(1, again.write(1, "a", "b"))
    assert sum(mq.asked[code] for code in SENDS) == sent
    again.run(2, "c")
    assert stream.drain() == read_batch(mq) == Counter("abc")


def test_what_a_failed_attempt_wrote_is_no_row(mq, client, query, stream) -> None:
    query.write(1, "a", "b")
    query.run(1, "a", "b")  # a new attempt of the task, or the query's next run
    query.run(2, "c")
    query.commits.abandon(TransactionName("query", 3))
    assert stream.drain() == read_batch(mq) == Counter("abc")


def test_of_two_processes_that_commit_a_batch_together_one_does(
    mq, client, query, stream, monkeypatch
) -> None:
    zombie, successor = query, Query(mq.name_server, client)
    written = [zombie.write(1, "a", "b"), successor.write(1, "a", "b")]
    look_up = zombie.commits._find

    def find_and_stop(*args: Any, **given: Any) -> tuple[bool, int]:
        found = look_up(*args, **given)
        successor.commit(1, written[1])  # while the other stands still between look-up and commit
        successor.run(2, "c")
        return found

    monkeypatch.setattr(zombie.commits, "_find", find_and_stop)
    zombie.commit(1, written[0])
    monkeypatch.undo()
    late = Stream(mq, startingOffsets="latest")
    assert not late.drain()
    late.stop()
    assert stream.drain() == read_batch(mq) == Counter("abc")
    zombie.run(2, "c")
    zombie.run(3, "d")
    assert stream.drain() == Counter("abcd")


def test_a_stream_that_starts_at_the_end_sees_what_is_committed_later(mq, client, query) -> None:
    query.run(1, "old")
    send(client, "plain")
    part = query.write(2, "a", "b")
    stream = Stream(mq, startingOffsets="latest")
    assert not stream.drain()
    query.commit(2, part, query.write(2, "c"))
    assert stream.drain() == Counter("abc")
    stream.stop()


def test_what_was_written_before_the_start_is_no_row(mq, client, query) -> None:
    part = query.write(1, *"abcdef")
    ends = client.max_offsets(client.read_queues("orders"))
    rest = query.write(1, "g", "h")
    query.commit(1, part, rest)
    start = json.dumps(nest(ends))
    stream = Stream(mq, startingOffsets=start)
    assert stream.drain() == read_batch(mq, startingOffsets=start) == Counter("gh")
    assert read_batch(mq, endingOffsets=start) == Counter("abcdef")
    stream.stop()


def test_an_available_now_run_ends_with_what_was_committed_at_its_start(mq, client, query, stream) -> None:
    query.run(1, *"abcd")
    query.write(2, "open")
    send(client, "plain")
    stream.reader.prepareForTriggerAvailableNow()
    query.run(2, "late")
    assert stream.drain() == Counter([*"abcd", "plain"])
    stream.restart()
    assert stream.drain() == Counter([*"abcd", "plain", "late"])


def test_ranges_are_read_in_order_without_what_is_not_committed(mq, client, query) -> None:
    query.write(1, "failed")
    query.run(1, *"abcdefg")
    send(client, "plain", "also plain")
    query.write(2, *"open")
    queues = client.read_queues("orders")
    ranges = [OffsetRange(queue, 0, end) for queue, end in client.max_offsets(queues).items()]
    committed = read_committed(client, {"orders": "orders-commits"})
    options = ReadOptions(consumer_group="tools")
    messages = [*read_messages(client, ranges, options, decided=committed)]
    decode = DecodeOptions(columns=("body", "queueId", "brokerName", "queueOffset"), decided=committed)
    rows = [row for batch in read_batches(client, ranges, options, decode) for row in batch.to_pylist()]
    assert Counter(message.body.decode() for message in messages) == Counter(
        [*"abcdefg", "plain", "also plain"]
    )
    assert [(row["brokerName"], row["queueId"], row["queueOffset"], row["body"]) for row in rows] == [
        (message.broker_name, message.queue_id, message.queue_offset, message.body) for message in messages
    ]
    with pytest.raises(OptionError, match="orders-commits decides which of these messages are rows"):
        [*read_messages(client, ranges, options, decided=Committed({"orders": "others"}))]


def test_an_rdd_has_what_was_committed_when_it_was_created(mq, client, query, monkeypatch) -> None:
    """Its tasks, without Spark; tests/spark has the rest."""
    query.run(1, *"abc")
    send(client, "plain")
    part = query.write(2, "later")
    made: list[Any] = []
    monkeypatch.setattr(rdd, "RocketMQRDD", lambda *given, **more: made.append((given, more)))
    ends = client.max_offsets(client.read_queues("orders"))
    ranges = [OffsetRange(queue, 0, end) for queue, end in ends.items()]
    given = {"nameServer": mq.name_server, "isolation": "read_committed"}
    rdd.create_rdd(None, "reader", ranges, given, LocationStrategies.PreferConsistent, None)
    query.commit(2, part)
    ((_, planned, options, *_), more) = made[0]
    messages = rdd._MessageReader(options, None, more["committed"])(0, planned)
    assert Counter(message.body.decode() for message in messages) == Counter([*"abc", "plain"])
    batches = rdd._BatchReader(options, to_projection(read_schema(("body",))), more["committed"])(0, planned)
    assert sum(batch.num_rows for batch in batches) == 4


def test_a_batch_waits_for_a_queue_that_does_not_answer(mq, client, query, caplog) -> None:
    stream = Stream(mq)
    send(client, "plain")
    stream.drain()
    query.commit(1, query.write(1, *"abcdefgh"), query.write(1, *"ijkl"))
    mq.stop_broker("broker-b")
    while stream.trigger():
        pass
    assert not stream.rows() & Counter("abcdefghijkl")
    assert "is committed and waits" in caplog.text
    mq.start_broker("broker-b")
    eventually(lambda: stream.drain() == Counter([*"abcdefghijkl", "plain"]), what="all of the batch")
    stream.stop()


def test_records_that_are_lost_are_told(mq, client, query, stream) -> None:
    query.run(1, "a")
    stream.drain()
    query.run(2, "b")
    mq.expire(LOG, client.max_offsets([LOG])[LOG])
    with pytest.raises(DataLossError, match="begins at") as failure:
        stream.trigger()
    assert failure.value.condition == "COMMITS_LOST"


def test_a_checkpoint_keeps_its_isolation(mq, client, query, stream) -> None:
    query.run(1, "a")
    stream.drain()
    options = source(mq, isolation="read_uncommitted")
    plain = RocketMQStreamReader(options, read_schema(("body",)))
    with pytest.raises(OptionError, match="was written with isolation=read_committed"):
        plain.latestOffset(stream.end, ReadAllAvailable())
    end = plain.latestOffset(plain.initialOffset(), ReadAllAvailable())
    with pytest.raises(OptionError, match="was written with isolation=read_uncommitted"):
        stream.reader.latestOffset(end, ReadAllAvailable())
    plain.stop()


@pytest.mark.parametrize(
    "given",
    [
        {"eventTimeAlignment": "store"},
        {"heartbeatInterval": "30s"},
        {"partitionPerQueue": "true"},
        {"maxBytesPerTrigger": "1m"},
        {"maxRatePerQueue": "5"},
        {"minOffsetsPerTrigger": "5"},
        {"consumerGroup": "report"},
        {"subscribePattern": "orders.*"},
    ],
)
def test_what_cannot_be_combined_is_refused(mq, given) -> None:
    with pytest.raises(
        OptionError, match=f"{next(iter(given))} cannot be combined with isolation=read_committed"
    ):
        source(mq, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"commitTopic": "others"},
            "orders-commits decides which of these messages are rows, and it was not",
        ),
        ({"commitTopic": "payments"}, "payments has 4 queues, and a commit topic has one"),
    ],
)
def test_messages_whose_commit_topic_was_not_read_are_no_silent_loss(mq, query, given, message) -> None:
    mq.create_topic("payments", 2)
    query.run(1, "a")
    with pytest.raises(OptionError, match=message):
        read_batch(mq, **given)


def test_a_message_in_a_commit_topic_that_is_no_record_is_an_error(mq, client, query) -> None:
    query.run(1, "a")
    Producer(client).send(OutgoingMessage("orders-commits", b"hello"))
    with pytest.raises(RemoteProtocolError, match="is no record of a transactional write"):
        read_batch(mq)


def test_a_commit_topic_whose_broker_is_down_is_not_created_at_another(mq, client, query, stream) -> None:
    query.run(1, "a")
    mq.stop_broker("broker-a")
    other = Query(mq.name_server, client)
    with pytest.raises(BrokerNotFoundError, match="Create it once, with one queue at one broker"):
        other.write(2, "b")
    mq.start_broker("broker-a")
    client.invalidate("orders")
    Query(mq.name_server, client).run(2, "b")
    assert stream.drain() == read_batch(mq) == Counter("ab")


def test_a_commit_that_came_too_late_is_sent_again(mq, client, query, stream, monkeypatch) -> None:
    """Too many records between a look and a commit make it void; a batch is not lost by that."""
    for module in (visible, commit_log):
        monkeypatch.setattr(module, "MAX_SPAN", 5)
    query.run(1, "a")
    written, look_up, looks = query.write(2, "b", "c"), query.commits._find, []

    def find_slowly(*args: Any, **given: Any) -> tuple[bool, int]:
        found = look_up(*args, **given)
        if not looks:
            for number in range(6):
                Query(mq.name_server, client, "other").commits.abandon(TransactionName("other", number))
        looks.append(found)
        return found

    monkeypatch.setattr(query.commits, "_find", find_slowly)
    query.commit(2, written)
    assert len(looks) == 2
    query.run(3, "d")
    assert stream.drain() == read_batch(mq) == Counter("abcd")


def test_one_commit_topic_for_two_topics_keeps_their_jobs_apart(mq, client) -> None:
    mq.create_topic("payments", 1)
    for topic, body in (("orders", "a"), ("payments", "b")):
        Query(mq.name_server, client, "monday", topic, commitTopic="orders-commits").run(0, body)
    assert read_batch(mq) == Counter("a")
    assert read_batch(mq, topic="payments", commitTopic="orders-commits") == Counter("b")
    both = Stream(mq, topic="orders,payments", commitTopic="orders-commits")
    assert both.drain() == Counter("ab")
    both.stop()


def test_a_commit_topic_that_comes_later_is_read_from_its_begin(mq, client, query) -> None:
    """Also where its first messages were seen before it: a planned batch can always be read."""
    query.run(1, "a")
    mq.stop_broker("broker-a")
    send(client, "plain")
    stream = Stream(mq)
    stream.trigger()
    mq.start_broker("broker-a")
    eventually(lambda: stream.drain() == Counter(["a", "plain"]), what="the batch")
    stream.restart()
    stream.stop()


@pytest.mark.parametrize("restart", [False, True])
def test_a_commit_topic_that_was_created_again_is_told(mq, client, query, stream, restart: bool) -> None:
    for number in range(1, 4):
        query.run(number, f"old{number}")
    stream.drain()
    mq.delete_topic("orders-commits")
    mq.create_topic("orders-commits", 1, brokers=["broker-a"])
    with Client(mq.name_server) as another:
        for number in range(1, 9):
            Query(mq.name_server, another, "second").run(number, f"new{number}")
    read_on = stream.restart if restart else stream.drain
    with pytest.raises(DataLossError, match="has other records now") as failure:
        read_on()
    assert failure.value.condition == "COMMITS_LOST"


def test_a_short_answer_of_a_broker_that_restarts_is_no_loss(mq, client, query, stream, monkeypatch) -> None:
    query.run(1, "a")
    stream.drain()
    reader, answers = stream.reader._open_client(), []
    ask = reader.ends

    def ends(queues: Any, **given: Any) -> Any:
        found = ask(queues, **given)
        answers.append(found)
        shorter = {queue: end - 1 for queue, end in found.masters.items()}
        return replace(found, masters=shorter) if len(answers) == 1 else found

    monkeypatch.setattr(reader, "ends", ends)
    assert not stream.trigger()
    assert len(answers) > 1


def test_commits_and_other_messages_share_a_limit(mq, client, query, stream) -> None:
    for number in range(1, 9):
        query.run(number, *(f"{number}-{row}" for row in range(3)))
    send(client, *(f"plain{number}" for number in range(8)))
    for _ in range(6):
        stream.trigger(ReadMaxRows(4))
    plain = sum(count for body, count in stream.rows().items() if body.startswith("plain"))
    assert 4 <= plain < stream.rows().total()


def test_each_commit_is_judged_once(mq, client, query, stream, monkeypatch) -> None:
    judged: list[int] = []
    judge = visible.is_valid
    monkeypatch.setattr(
        commit_log, "is_valid", lambda offset, *rest: judged.append(offset) or judge(offset, *rest)
    )
    for number in range(1, 30):
        query.run(number, f"{number}")
        stream.drain()
    assert len(judged) <= 2 * 29, "once to plan, and once to skip what lies between"


def test_an_idle_query_does_not_read_records_again(mq, client, query, stream) -> None:
    for number in range(1, 30):
        query.run(number, f"{number}")
    stream.drain()
    asked = mq.asked[RequestCode.PULL_MESSAGE]
    for _ in range(5):
        assert not stream.trigger()
    assert mq.asked[RequestCode.PULL_MESSAGE] == asked
    query.run(30, "30")
    assert stream.drain() == Counter(map(str, range(1, 31)))


def test_a_write_goes_on_where_records_have_expired(mq, client, query) -> None:
    query.run(1, "a")
    query.run(2, "b")
    (last,) = [m.queue_offset for m in mq.messages("orders-commits", LOG)][-1:]
    mq.expire(LOG, last)
    Query(mq.name_server, client).run(2, "b")
    Query(mq.name_server, client).run(3, "c")
    assert read_batch(mq) >= Counter("bc")


def test_commits_that_expire_before_their_messages_are_told(mq, client, query, caplog) -> None:
    query.run(1, *"abcdefghijkl")
    query.run(2, "m")
    assert read_batch(mq).total() == 13
    assert "have expired" not in caplog.text
    newest = max(m.store_timestamp for queue in mq.queues("orders") for m in mq.messages("orders", queue))
    eventually(lambda: SYSTEM_CLOCK.now_ms() > newest, what="a later time")
    query.run(3, "n")
    last = client.max_offsets([LOG])[LOG]
    mq.expire(LOG, last - 2)
    assert read_batch(mq) == Counter("n")
    assert "messages are older than the first that is left, such as those of orders@broker-b" in caplog.text
    caplog.clear()
    stream = Stream(mq)
    assert stream.drain() == Counter("n")
    assert caplog.text.count("the first records of the commit topic orders-commits have expired") == 1
    stream.stop()


def test_a_queue_whose_broker_was_down_at_the_start_has_the_same_floor(mq, client, query) -> None:
    query.run(1, *(f"old{number}" for number in range(12)))
    newest = max(m.store_timestamp for queue in mq.queues("orders") for m in mq.messages("orders", queue))
    mq.stop_broker("broker-b")
    stream = Stream(mq, startingTimestamp=str(newest + 1))
    stream.trigger()
    mq.start_broker("broker-b")
    new = [f"new{number}" for number in range(8)]
    client.invalidate("orders")
    send(client, *new)
    eventually(lambda: stream.drain() >= Counter(new), what="what all queues have")
    assert stream.rows() == Counter(new)
    stream.stop()


def test_a_task_that_failed_holds_nothing_up(mq, client, query, stream) -> None:
    query.run(1, "a")
    failing = Query(mq.name_server, client, maxMessageBytes="100", batchBytes="100")
    with pytest.raises(OptionError, match="maxMessageBytes"):
        failing.write(2, "b", "c", "d", "x" * 200)
    send(client, "plain")
    assert stream.drain() == Counter(["a", "plain"])


def test_a_batch_of_dead_letters_holds_nothing_up(mq, client, stream) -> None:
    mq.create_topic("dead", 1)
    query = Query(mq.name_server, client, maxMessageBytes="100", batchBytes="100", deadLetterTopic="dead")
    query.run(1, "x" * 200)
    send(client, "plain")
    assert stream.drain() == Counter(["plain"])


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_writes_commits_reads_and_restarts(mq, client, seed: int) -> None:
    choose = random.Random(seed)
    writers = dict.fromkeys(("first", "second"), 1)
    open_parts: dict[str, list[Ranges | None]] = {name: [] for name in writers}
    pending: dict[str, list[str]] = {name: [] for name in writers}
    expected: Counter[str] = Counter()
    whole: list[set[str]] = []
    limited = seed % 2 == 1
    stream, made = Stream(mq), 0
    for _ in range(60):
        name = choose.choice([*writers])
        query = Query(mq.name_server, client, name)
        step = choose.choice(
            ("write", "write", "commit", "commit", "fail", "send", "read", "read", "restart")
        )
        match step:
            case "write":
                bodies = [f"{name}-{writers[name]}-{made + i}" for i in range(choose.randint(1, 9))]
                made += len(bodies)
                open_parts[name].append(query.write(writers[name], *bodies))
                pending[name] += bodies
            case "commit" if pending[name]:
                query.commit(writers[name], *open_parts[name])
                expected.update(pending[name])
                whole.append(set(pending[name]))
                writers[name] += 1
                open_parts[name], pending[name] = [], []
            case "fail":
                if choose.random() < 0.5:
                    query.commits.abandon(TransactionName(name, writers[name]))
                open_parts[name], pending[name] = [], []
            case "send":
                bodies = [f"plain-{made + i}" for i in range(choose.randint(1, 4))]
                made += len(bodies)
                send(client, *bodies)
                expected.update(bodies)
            case "read":
                stream.trigger(ReadMaxRows(choose.randint(1, 12)) if limited else ReadAllAvailable())
            case "restart":
                stream.restart()
    for name, left in pending.items():
        if left:
            Query(mq.name_server, client, name).commit(writers[name], *open_parts[name])
            expected.update(left)
            whole.append(set(left))
        Query(mq.name_server, client, name).commits.abandon(
            TransactionName(name, writers[name])
        )  # else others wait for it
    assert stream.drain() == read_batch(mq) == expected
    for transaction in whole:
        holders = [batch for batch in stream.batches if transaction & set(batch)]
        assert len(holders) == 1, "a committed batch is in one micro-batch"
    stream.stop()


def test_records_that_expire_while_a_writer_searches_them_fail_nothing(
    mq: MockCluster, client: Client, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        query.run(number, f"m{number}")
    min_offsets = Client.min_offsets

    def and_expire(self: Client, queues: Any) -> Any:
        first = min_offsets(self, queues)
        mq.expire(LOG, 3)
        return first

    monkeypatch.setattr(Client, "min_offsets", and_expire)
    assert query.commits.is_committed(TransactionName("query", 2))
    mq.expire(LOG, 0)
    assert not query.commits.is_committed(TransactionName("other", 2))
