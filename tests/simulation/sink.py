"""A streaming write: the real sink's tasks in a model of Spark's engine, which runs them more than once."""

from __future__ import annotations

import contextlib
import itertools
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from tests.simulation.dead_letters import DEAD_LETTERS, FLAWS, LARGEST_BYTES, SinkRow
from tests.simulation.half_checks import Resolver
from tests.simulation.history import KEYS
from tests.simulation.program import Program
from tests.simulation.stage import Stage
from tests.simulation.tasks import Survive, TaskSet

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.errors import (
    DataLossError,
    NameServerError,
    OptionError,
    RocketMQError,
    TopicNotFoundError,
)
from pyspark_rocketmq.model import SendStatus
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.spark.write.committed.staging_topic import batch_name
from pyspark_rocketmq.spark.write.sink_schema import sink_layout
from pyspark_rocketmq.spark.write.transaction import Transactions
from pyspark_rocketmq.spark.write.transaction_log import TransactionLog, TransactionName
from pyspark_rocketmq.spark.write.write_task import WriteReport, WriteScope, WriteTask
from pyspark_rocketmq.spark.write.writer import RocketMQStreamWriter, TaskWritten

__all__ = ["Sink", "SinkPlan"]

_QUERY: Final = "query"
_COMMIT_S: Final = 15.0
"""A driver whose end is drawn dies within this time of its commit's begin."""
_APPEND_S: Final = (0.01, 0.1, 0.5)
"""One that has begun to append its rows to their topic: most appends take less than a second."""
_WEAK: Final = "stored, but not as durably"
_MEMORY: Final = Path("/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlan:
    """What a streaming write has to write.

    Parameters
    ----------
    batches, partitions, rows : int
        Rows are a partition's.
    keyed : bool
        Whether rows have a sharding key, so that those of a key keep their order.
    pause_s : float
        Between two batches.
    options : dict
    changes : tuple of dict
        Options that replace others when the write is started again: at the first restart, the second, …, and
        from the beginning.
    flawed : int
        One row of so many cannot be sent; 0: all can.
    """

    batches: int = 1
    partitions: int = 1
    rows: int = 3
    keyed: bool = False
    pause_s: float = 0.0
    options: dict[str, str] = field(default_factory=dict)
    changes: tuple[dict[str, str], ...] = ()
    flawed: int = 0

    @classmethod
    def drawn(cls, chance: random.Random, span_s: float, *, keyed: bool | None) -> SinkPlan:
        """Draw a plan of a write that takes about ``span_s``."""
        one_of = chance.choice
        options = {"sendTimeoutMs": one_of(("400", "2000"))}
        for name, values in {
            "batchSize": ("1", "3", "17"),
            "sendsInFlight": ("1", "2", "16"),
            "retries": ("0", "5"),
            "deliveryGuarantee": ("effectively-once",),
        }.items():
            if chance.random() < 0.5:
                options[name] = one_of(values)
        batches = one_of((2, 4, 6))
        return cls(
            batches=batches,
            partitions=one_of((1, 2, 3)),
            rows=one_of((3, 8, 20)),
            keyed=chance.random() < 0.6 if keyed is None else keyed,
            pause_s=span_s / batches * one_of((0.0, 1.0)),
            options=options,
        )

    def made_transactional(self) -> SinkPlan:
        """Return the plan of a write whose batches become visible as a whole."""
        options = {**self.options, "deliveryGuarantee": "transactional", "producerGroup": "sink"}
        return replace(self, options=options)

    def made_committed(self, visibility: str) -> SinkPlan:
        """Return the plan of a write whose batches are committed in a commit topic."""
        committed = {"deliveryGuarantee": "transactional", "transactionVisibility": visibility}
        return replace(self, options={**self.options, **committed})

    def made_flawed(self, chance: random.Random) -> SinkPlan:
        """Return the plan of a write of which some rows are dead letters."""
        options = {
            "deadLetterTopic": DEAD_LETTERS,
            "maxMessageBytes": str(LARGEST_BYTES),
            "batchBytes": chance.choice(("500", str(LARGEST_BYTES))),
            "compression": "none",
        }
        return replace(self, options={**self.options, **options}, flawed=chance.choice((2, 3, 5)))

    def made_content(self) -> SinkPlan:
        """Return the plan of a write to which it is enough that brokers have stored its rows."""
        accepted = ",".join(status.value for status in SendStatus)
        return replace(self, options={**self.options, "acceptStatuses": accepted})

    @property
    def retries(self) -> bool:
        """Whether a send that is refused is tried again, whatever options it has."""
        return all(options.get("retries") != "0" for options in (self.options, *self.changes))

    @property
    def sound(self) -> bool:
        """Whether its options belong together: of one that was shrunk, they may not."""
        flawed = {"deadLetterTopic", "maxMessageBytes", "batchBytes", "compression"}
        if self.flawed and not flawed <= self.options.keys():
            return False
        log = {"transactionLog": "decisions"} if self.transactional else {}
        with contextlib.suppress(OptionError):
            given = {"nameServer": "10.0.0.1:9876", "topic": "orders", **log, **self.options}
            return bool(parse_options(SinkOptions, given, where="writeStream", environ={}))
        return False

    @property
    def committed(self) -> bool:
        """Whether batches are committed in a commit topic."""
        return "transactionVisibility" in self.options

    @property
    def transactional(self) -> bool:
        """Whether batches become visible as a whole, to every reader."""
        return self.options.get("deliveryGuarantee") == "transactional" and not self.committed


class Sink:
    """A streaming query that writes, and is started again whenever it ends.

    Its last batch is written after everything is well again.

    Parameters
    ----------
    stage : Stage
    plan : SinkPlan
    options : mapping of str to str
    chance : random.Random
    body_bytes : int
        Bodies are filled up with spaces.
    name : str
        With several, each has its own.
    resolved : bool
        Whether a resolver answers brokers that ask about half messages.
    """

    def __init__(
        self,
        stage: Stage,
        plan: SinkPlan,
        options: Mapping[str, str],
        chance: random.Random,
        *,
        body_bytes: int,
        name: str = "sink",
        resolved: bool = False,
    ) -> None:
        self._stage = stage
        self._name = name
        self._query = _QUERY if name == "sink" else name
        self._history = stage.history
        self._plan = plan
        self._folder = self._decisions = None
        if plan.transactional:
            self._folder = tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.exists() else None)
            stage.folders[self._folder.name] = "the folder of transactions"
            options = {**options, "transactionLog": self._folder.name}
            self._decisions = TransactionLog(self._folder.name)
            self._history.transactional = True
            self._history.watch = self._check_decided
        self._decided: set[int] = set()
        self._given = dict(options)
        self._runs = itertools.cycle(({}, *plan.changes))
        self._options = self._parse({})
        columns = [("body", pa.binary())] + [("shardingKey", pa.string())] * plan.keyed
        columns += [("tags", pa.string()), ("keys", pa.string())] * bool(plan.flawed)
        self._schema = pa.schema(columns)
        self._spark_schema = from_arrow_schema(self._schema)
        self._layout = sink_layout(self._spark_schema, self._options)
        self._chance = chance
        self._resolver = Resolver(stage, self._options, random.Random(chance.random())) if resolved else None
        self._body_bytes = body_bytes
        self._finished = 0
        self._begun = -1
        self._appended: set[str] = set()
        self._incomplete: set[int] = set()
        """Batches that were ended without half messages that are lost."""
        self.program = Program(
            stage, name, self._options.client, chance, run=self._run, failed=lambda _: None
        )

    def _parse(self, changes: Mapping[str, str]) -> SinkOptions:
        return parse_options(SinkOptions, self._given | changes, where="writeStream", environ={})

    def start(self) -> None:
        """Begin."""
        self.program.start()

    def clean_up(self) -> None:
        """Delete the decisions."""
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def rests(self) -> bool:
        """Whether only the last batch is left, or none."""
        return self._finished >= self._plan.batches - 1

    @property
    def done(self) -> bool:
        """Whether everything is written."""
        return self._finished >= self._plan.batches

    def is_finished(self, name: TransactionName) -> bool:
        """Whether the log of decisions says that a batch is finished."""
        done = None if self._decisions is None else self._decisions.newest_done(name.owner)
        return done is not None and name.number <= done

    def _run(self) -> None:
        if changes := next(self._runs):
            self._history.did["sink: started again with other options"] += 1
            self._stage.note(f"{self._name} has the options {changes}")
        self._options = self._parse(changes)
        if self._resolver is not None:
            self._resolver.start()
        client = Client(
            self._options.client,
            clock=self.program.clock,
            random=random.Random(self._chance.random()),
            host=self.program.host,
        )
        while not self.done:
            if self.rests and not self._stage.healed:
                self._stage.scheduler.park(1.0)
                continue
            number = self._finished
            self._history.did["sink: batch written again"] += number == self._begun
            self._begun = number
            self.program.step("started")
            name = batch_name(self._options, self._query, number)
            writer = RocketMQStreamWriter(self._options, self._spark_schema, connect=lambda _: client)
            tasks = TaskSet[WriteReport](
                self._stage,
                self.program.driver,
                self.program.executors,
                lambda client, index, survive, name=name: self._write(client, name, index, survive),
                self._plan.partitions,
                chance=self._chance,
                compare=lambda *_: None,
                failed=self._failed,
            )
            try:
                reports = tasks.run()
            except RocketMQError:
                writer.abort([TaskWritten(report, name) for report in tasks.results], number)
                raise
            self.program.step("tasks done")
            if self._plan.transactional or self._plan.committed:
                self.program.endanger(_COMMIT_S)
            self._history.deciding.add(f"{self._name}-{number}")
            try:
                writer.commit([TaskWritten(report, name) for report in reports], number)
            except DataLossError as error:
                self._end_without_lost(client, name, error)
            else:
                self._acknowledge(number)
            self.program.step("committed")
            self._finished = max(self._finished, number + 1)
            if self._plan.pause_s:
                self._stage.scheduler.park(self._chance.expovariate(1 / self._plan.pause_s))
        self._stage.scheduler.park(None)

    def _end_without_lost(self, client: Client, name: TransactionName, error: DataLossError) -> None:
        """Do what the error says: end the batch without half messages that retention has deleted."""
        if error.condition != "HALF_MESSAGES_LOST" or self._decisions is None:
            raise error
        self._history.did["sink: half messages are lost"] += 1
        self._incomplete.add(name.number)
        transactions = Transactions(
            client, self._decisions, outage_timeout_ms=self._options.outage_timeout_ms
        )
        transactions.finish(name, skip_lost=True)

    def appended(self, batch: str) -> None:
        """The driver may end soon after the first row of a staged batch was appended."""
        if batch not in self._appended:
            self._appended.add(batch)
            self.program.endanger(self._chance.choice(_APPEND_S))

    # --- rows ---

    def _rows(self, batch: int, partition: int) -> list[SinkRow]:
        """Return the rows of a partition; which of them have a flaw, and which one, is always the same."""
        found = []
        every = self._plan.flawed
        for number in range(self._plan.rows):
            key = KEYS[(number + partition) % len(KEYS)] if self._plan.keyed else None
            lane = f"{self._name}-{batch}.{partition}-{key or 'any'}"
            flawed = every and number % every == every - 1
            flaw = FLAWS[(batch + partition + number // every) % len(FLAWS)] if flawed else None
            found.append(SinkRow(lane, number, key, flaw))
        return found

    def _batches(self, rows: list[SinkRow], survive: Survive) -> Iterator[pa.RecordBatch]:
        """Give out the rows as Spark does, in record batches between which an executor may die."""
        size = max(1, len(rows) // 3)
        for start in range(0, len(rows), size):
            survive()
            mine = rows[start : start + size]
            bodies = [row.body(self._body_bytes) for row in mine]
            for row, body in zip(mine, bodies, strict=True):
                if row.flaw is None:
                    self._history.sent.add(body.rstrip())
                else:
                    self._history.dead_letters.expect(row, body, self._given["topic"])
            columns = [pa.array(bodies, pa.binary())]
            if self._plan.keyed:
                columns.append(pa.array([row.key for row in mine], pa.string()))
            if self._plan.flawed:
                columns.append(pa.array([row.tags for row in mine], pa.string()))
                columns.append(pa.array([row.keys for row in mine], pa.string()))
            yield pa.record_batch(columns, schema=self._schema)
        survive()

    def _write(self, client: Client, name: TransactionName, partition: int, survive: Survive) -> WriteReport:
        rows = self._rows(name.number, partition)
        scope = WriteScope(job=str(name), partition=partition, transaction=name)
        report = WriteTask(client, self._options, self._layout, scope).run(self._batches(rows, survive))
        if report.rows != len(rows):
            self._history.miscounted.append(f"{report.rows} rows are reported, {len(rows)} were given")
        flawed = sum(row.flaw is not None for row in rows)
        if report.dead_letters != flawed and not self._plan.committed:  # such a batch is not sent twice
            self._history.miscounted.append(f"{report.dead_letters} of {flawed} dead letters are reported")
        return report

    def _failed(self, error: RocketMQError) -> None:
        """An outage is waited for, except by a new process that has never reached a name server.

        And rows are written again that are stored, but not as the write demands. Proxies do not tell that
        name servers have restarted and know no broker yet.
        """
        unknown = self._history.proxied and isinstance(error, TopicNotFoundError)
        unreached = any(isinstance(one, NameServerError) for one in (error, error.__cause__))
        if _WEAK in str(error) and "acceptStatuses" not in self._given:
            self._history.did["a write fails: stored, but not durably"] += 1
        elif not unknown and not unreached:
            self._history.refused.append(f"a task of the sink: {error}")

    def _check_decided(self, body: bytes) -> None:
        """No row may be visible unless the log says that its batch is."""
        batch = int(body.decode().removeprefix("sink-").partition(".")[0])
        if batch in self._decided or self._decisions is None:
            return
        done = self._decisions.newest_done(_QUERY)
        if (done is not None and batch <= done) or batch in self._decisions.undone(_QUERY):
            self._decided.add(batch)
        else:
            self._history.undecided.append(f"{body!r} is visible, and batch {batch} is not decided")

    def _acknowledge(self, batch: int) -> None:
        if batch in self._incomplete:
            return
        for partition in range(self._plan.partitions):
            for row in self._rows(batch, partition):
                if row.flaw is None:
                    self._history.acknowledged.setdefault(row.lane, set()).add(row.number)
                else:
                    self._history.dead_letters.due.add(row.name)
