"""Histories of what a reader has seen of committed ranges, in any order of crashes, zombies and lost answers.

`commit_history` judges them. It shares no code with what it judges, and finds what a defective reader or
writer does.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from tests.support.commit_history import Defect, Finding, Reading, Seen, Transaction, decide, examine
from tests.support.direct_stream import DirectStream

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client.commits import commit_log
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.options import SinkOptions, SourceOptions, parse_options
from pyspark_rocketmq.planning.commits import visible
from pyspark_rocketmq.planning.commits.records import Ranges
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.spark.features import ReadAllAvailable
from pyspark_rocketmq.spark.read import committed
from pyspark_rocketmq.spark.read.committed import CommittedBatchReader, CommittedStreamReader
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.write.committed import range_commits
from pyspark_rocketmq.spark.write.committed.range_commits import RangeCommits
from pyspark_rocketmq.spark.write.sink_schema import sink_layout
from pyspark_rocketmq.spark.write.transaction_log import TransactionName
from pyspark_rocketmq.spark.write.write_task import WriteScope, WriteTask
from pyspark_rocketmq.testing import HangUp, Injection, MockCluster

SCHEMA = pa.schema([("body", pa.string()), ("shardingKey", pa.string())])
LOG = MessageQueue("orders-commits", "broker-a", 0)
COLUMNS = ("brokerName", "queueId", "queueOffset", "body")
KEYS, ROWS = 2, 7
"""Each batch has this many keys, a task each, with this many rows each."""

STEPS = ("run", "run", "fail", "crash", "freeze", "wake", "lose", "read", "restart", "batch")

Parts = list[Ranges | None]


class Driver:
    """One life of a query's driver; a batch that comes again has the same rows."""

    def __init__(self, name_server: str, client: Client, query: str) -> None:
        given = {"nameServer": name_server, "topic": "orders", "deliveryGuarantee": "transactional"}
        given |= {"transactionVisibility": "committed", "outageTimeout": "60s", "batchSize": "3"}
        self._options = parse_options(SinkOptions, given, environ={})
        self._client = client
        self._commits = RangeCommits(client, self._options)
        self.query = query

    def write(self, number: int) -> Parts:
        """Run the tasks of a batch."""
        return [self.run_task(number, key) for key in range(KEYS)]

    def run_task(self, number: int, key: int) -> Ranges | None:
        name, label = TransactionName(self.query, number), f"{self.query}-{key}"
        rows = {
            "body": [f"{label}|{number * ROWS + row}" for row in range(ROWS)],
            "shardingKey": [label] * ROWS,
        }
        scope = WriteScope(job=str(name), partition=key, transaction=name)
        layout = sink_layout(from_arrow_schema(SCHEMA), self._options)
        batch = pa.RecordBatch.from_pydict(rows, schema=SCHEMA)
        return WriteTask(self._client, self._options, layout, scope).run([batch]).ranges

    def commit(self, number: int, parts: Parts, *, looked_at: int | None = None) -> None:
        """Commit a batch; a driver that was stopped has looked for other commits up to an earlier end."""
        look = self._commits._find
        if looked_at is not None:

            def find(*_: Any, **__: Any) -> tuple[bool, int]:
                self._commits._find = look  # type: ignore[method-assign]
                return False, looked_at

            self._commits._find = find  # type: ignore[method-assign]
        self._commits.commit(TransactionName(self.query, number), parts)


class World:
    """Two queries that write one topic, their zombies, and two streams that start again now and then."""

    def __init__(self, mq: MockCluster, client: Client, choose: random.Random) -> None:
        self._mq, self._client, self._choose = mq, client, choose
        self._drivers = {query: self._start(query) for query in ("first", "second")}
        self._done = dict.fromkeys(self._drivers, 0)
        """How many batches each query's checkpoint has as done."""
        self._zombies: list[tuple[Driver, int, Parts, int]] = []
        self._lost: list[Injection] = []
        self.history: list[Reading] = []
        self._found: list[Finding] = []
        given = {"nameServer": mq.name_server, "topic": "orders", "isolation": "read_committed"}
        self._options = parse_options(
            SourceOptions, given | {"startingOffsets": "earliest"}, where="readStream", environ={}
        )
        self._reader = CommittedStreamReader(self._options, read_schema(COLUMNS))
        self._direct = DirectStream(mq)
        self._end: dict[str, Any] = self._reader.initialOffset()
        self._last: tuple[dict[str, Any], dict[str, Any]] | None = None

    def _start(self, query: str) -> Driver:
        return Driver(self._mq.name_server, self._client, query)

    def step(self) -> None:
        query = self._choose.choice([*self._drivers])
        driver, number = self._drivers[query], self._done[query]
        match self._choose.choice(STEPS):
            case "run":
                driver.commit(number, driver.write(number))
                self._done[query] += 1
            case "fail":  # a task runs again
                driver.run_task(number, 0)
            case "crash":  # after the commit, of which the checkpoint does not know
                driver.commit(number, driver.write(number))
                self._drivers[query] = self._start(query)
            case "freeze":  # between its look for other commits and its own
                parts = driver.write(number)
                self._zombies.append((driver, number, parts, self._client.max_offsets([LOG])[LOG]))
                self._drivers[query] = self._start(query)
            case "wake" if self._zombies:
                zombie, late, parts, end = self._zombies.pop(self._choose.randrange(len(self._zombies)))
                zombie.commit(late, parts, looked_at=end)
            case "lose":  # the answer to a send, or to a commit: it is sent again
                code = self._choose.choice((RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
                self._lost.append(self._mq.inject(HangUp(executed=True), on=code, times=1))
            case "restart":
                self._direct.recover()
                self._reader.stop()
                self._reader = CommittedStreamReader(self._options, read_schema(COLUMNS))
                if self._last is not None:
                    self._take(len({reading.batch for reading in self.history}) - 1, *self._last)
            case "batch":
                self._read_batch()
            case _:
                self._direct.trigger()
                self.read()

    def _read_batch(self) -> None:
        """Read all in a batch, without limits: it sees each transaction that is decided, whole."""
        given = {"nameServer": self._mq.name_server, "topic": "orders", "isolation": "read_committed"}
        options = parse_options(SourceOptions, given, where="read", environ={})
        reader = CommittedBatchReader(options, read_schema(COLUMNS))
        rows = [
            seen(**row)
            for partition in reader.partitions()
            for found in reader.read(partition)
            for row in found.to_pylist()
        ]
        self._found += examine([Reading(0, rows)], self._decided(), {})

    def _decided(self) -> list[Transaction]:
        records = [(message.queue_offset, message.body) for message in self._mq.messages(LOG.topic, LOG)]
        return decide(records, "orders")

    def read(self) -> bool:
        """Run a micro-batch if there is one."""
        document = self._reader.latestOffset(self._end, ReadAllAvailable())
        end = json.loads(json.dumps(document))
        if end == self._end:
            return False
        self._last = (self._end, end)
        self._take(len({reading.batch for reading in self.history}), *self._last)
        self._end = end
        return True

    def _take(self, batch: int, begin: dict[str, Any], end: dict[str, Any]) -> None:
        rows = [
            seen(**row)
            for partition in self._reader.partitions(begin, end)
            for found in self._reader.read(partition)
            for row in found.to_pylist()
        ]
        self.history.append(Reading(batch, rows))

    def finish(self) -> list[Finding]:
        """Commit what zombies still hold, finish the queries, read the rest, and judge."""
        for zombie, late, parts, end in self._zombies:
            zombie.commit(late, parts, looked_at=end)
        for query, driver in self._drivers.items():
            driver.commit(self._done[query], driver.write(self._done[query]))
            self._done[query] += 1
        assert all(answer.hits for answer in self._lost)
        while self.read():
            pass
        self._direct.drain()
        self._reader.stop()
        self._direct.stop()
        written = {f"{query}-{key}": n * ROWS for query, n in self._done.items() for key in range(KEYS)}
        direct = [
            Reading(number, [seen(m.broker_name, m.queue_id, m.queue_offset, m.body) for m in messages])
            for number, messages in enumerate(self._direct.messages)
        ]
        readers = (self.history, direct)
        return [*self._found, *(each for it in readers for each in examine(it, self._decided(), written))]


def seen(brokerName: str, queueId: int, queueOffset: int, body: bytes) -> Seen:  # noqa: N803 - columns
    key, _, number = body.decode().rpartition("|")
    return Seen((brokerName, queueId), queueOffset, key, int(number))


def live(seed: int, steps: int = 60) -> list[Finding]:
    with (
        MockCluster({"orders": 3, "orders-commits": 1}) as mq,
        Client(mq.name_server) as client,
    ):
        world = World(mq, client, random.Random(seed))
        for _ in range(steps):
            world.step()
        return world.finish()


@pytest.mark.parametrize("seed", range(5))
def test_a_history_is_sound(seed: int) -> None:
    assert live(seed) == []


def accept_every_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (visible, commit_log, range_commits):
        monkeypatch.setattr(module, "is_valid", lambda *_: True)


def divide_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the last row of each micro-batch's commits to nobody."""
    listed = committed.listed
    monkeypatch.setattr(committed, "listed", lambda ranges: listed(ranges)[:-1])


def read_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = committed.plan_partitions
    monkeypatch.setattr(committed, "UnmarkedPartition", lambda value, _: plan(value, OPTIONS)[0])


OPTIONS = parse_options(
    SourceOptions,
    {"nameServer": "127.0.0.1:1", "topic": "orders", "minPartitions": "1"},
    where="read",
    environ={},
)


@pytest.mark.parametrize(
    ("mistake", "defects"),
    [
        (accept_every_commit, {Defect.ABORTED, Defect.REPEATED}),
        (divide_batches, {Defect.LOST}),
        (read_everything, {Defect.ABORTED, Defect.REPEATED}),
    ],
)
def test_mistakes_are_found(
    mistake: Callable[[pytest.MonkeyPatch], None], defects: set[Defect], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    found = {finding.defect for seed in range(2) for finding in live(seed)}
    assert found >= defects
