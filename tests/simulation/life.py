"""One life: a cluster, writers and a query, whose every accident follows from one number."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.simulation.cluster import Cluster
from tests.simulation.faults import Fault, draw_faults, happen
from tests.simulation.history import History
from tests.simulation.judges import judge
from tests.simulation.network import Habits, Network
from tests.simulation.query import Query
from tests.simulation.scheduler import Scheduler, Spinning
from tests.simulation.tasks import Kills
from tests.simulation.writer import Writer

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.options import ClientOptions, parse_options
from pyspark_rocketmq.testing.log import PullLimits

__all__ = ["Plan", "Verdict", "live"]

_TOPIC: Final = "orders"
_GROUP: Final = "report"
_FAULTS_WITHIN_S: Final = 30.0
_CATCHES_UP_S: Final = 400.0
"""A query that is not done so long after the last fault is stalled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a seed chooses before a life begins."""

    seed: int
    brokers: int
    name_servers: int
    slaves: int
    slave_readable: bool
    queues: int
    static: bool
    compacted: bool
    lossy: bool
    limits: PullLimits
    habits: Habits
    kills: Kills
    options: dict[str, str]
    available_now: bool
    trigger_s: float
    skew_ms: int
    writers: tuple[tuple[int, float, bool], ...]
    body_bytes: int
    faults: tuple[Fault, ...]

    @classmethod
    def of(cls, seed: int) -> Plan:
        """Draw a plan."""
        chance = random.Random(seed)
        one_of = chance.choice
        options = {
            "startingOffsets": "earliest",
            "requestTimeoutMs": one_of(("800", "2000", "10000")),
            "connectTimeoutMs": one_of(("500", "3000")),
            "routeRefreshMs": one_of(("1000", "5000", "30000")),
        }
        for name, values in {
            "maxOffsetsPerTrigger": ("1", "13", "100", "1000"),
            "minPartitions": ("2", "7"),
            "maxRecordsPerPartition": ("3", "50"),
            "pullBatchSize": ("1", "7", "32", "1024"),
            "pullsInFlight": ("1", "2", "16"),
            "maxRatePerQueue": ("5", "50"),
        }.items():
            if chance.random() < 0.3:
                options[name] = one_of(values)
        if chance.random() < 0.5:
            options |= {"consumerGroup": _GROUP, "commitIntervalMs": one_of(("0", "1000", "5000"))}
        static = chance.random() < 0.1
        lossy = not static and chance.random() < 0.2
        compacted = not static and chance.random() < 0.1
        slaves = 0 if static else one_of((0, 0, 1, 2))
        features = {
            "a static topic moves": static,
            "compaction": compacted,
            "retention deletes messages": lossy,
            "a log file is deleted": lossy,
            "a slave lags": bool(slaves),
            "a master is killed": bool(slaves),
        }
        likely = [kind for kind, has in features.items() if has]
        options["failOnDataLoss"] = str(not lossy).lower()
        return cls(
            seed=seed,
            brokers=2 if static else one_of((1, 2, 2, 3)),
            name_servers=one_of((1, 2, 3)),
            slaves=slaves,
            slave_readable=chance.random() < 0.5,
            queues=one_of((1, 2, 4, 8)),
            static=static,
            compacted=compacted,
            lossy=lossy,
            limits=PullLimits(one_of((1, 8, 32, 32)), one_of((300, 1 << 18))),
            habits=Habits(
                delay_s=one_of((0.0001, 0.001, 0.02)),
                jitter_s=one_of((0.0, 0.001, 0.02)),
                bytes_per_s=one_of((1e5, 1e7, 1e9)),
                short_reads=one_of((0.0, 0.0, 0.2)),
                short_sends=one_of((0.0, 0.0, 0.2)),
                tls=chance.random() < 0.2,
            ),
            kills=one_of((Kills(), Kills(), Kills(0.02, 0.0, 0.0), Kills(0.05, 0.02, 0.1))),
            options=options,
            available_now=chance.random() < 0.25,
            trigger_s=one_of((0.5, 2.0, 5.0)),
            skew_ms=one_of((0, 0, -30_000, 3_600_000)),
            writers=tuple(
                (one_of((20, 60, 200)), one_of((0.0, 0.1, 1.0)), ordered)
                for ordered in one_of(((False,), (True,), (False, True)))
            ),
            body_bytes=one_of((1, 1, 200, 4_000)),
            faults=tuple(draw_faults(chance, _FAULTS_WITHIN_S, likely)),
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a life.

    Parameters
    ----------
    wrong : dict
        What each judge found.
    took_s : float
        Virtual seconds.
    did : Counter
    events : sequence of str
    """

    plan: Plan
    wrong: dict[str, list[str]]
    took_s: float
    rows: int
    did: Counter[str]
    events: Sequence[str]


class _World:
    """The parts of a life, put together."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = random.Random(plan.seed ^ 0x5EED)
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, self._own_chance(), plan.habits)
        self.history = History()
        self.cluster = Cluster(
            self.network,
            brokers=[f"broker-{'abcdef'[number]}" for number in range(plan.brokers)],
            name_servers=plan.name_servers,
            slaves=plan.slaves,
            slave_readable=plan.slave_readable,
            limits=plan.limits,
            on_append=self.history.stored.__setitem__,
        )
        if plan.static:
            self.cluster.create_static_topic(_TOPIC, plan.queues)
        else:
            attributes = {"cleanup.policy": "COMPACTION"} if plan.compacted else None
            self.cluster.create_topic(_TOPIC, plan.queues, attributes=attributes)
        client = {name: value for name, value in plan.options.items() if name in _CLIENT_OPTIONS}
        client["nameServer"] = self.cluster.name_server
        self.writers = [
            Writer(
                f"writer-{number}",
                self.network,
                parse_options(ClientOptions, client, environ={}),
                _TOPIC,
                self.history,
                self._own_chance(),
                messages=messages,
                pause_s=pause_s,
                ordered=ordered,
                body_bytes=plan.body_bytes,
                note=self.note,
            )
            for number, (messages, pause_s, ordered) in enumerate(plan.writers)
        ]
        self.query = Query(
            self.network,
            {"nameServer": self.cluster.name_server, "topic": _TOPIC, **plan.options},
            self.history,
            self._own_chance(),
            plan.kills,
            available_now=plan.available_now,
            trigger_s=plan.trigger_s,
            skew_ms=plan.skew_ms,
            committed=self._committed,
            note=self.note,
        )

    def _own_chance(self) -> random.Random:
        """A source of its own for each part: what one draws does not change what others do."""
        return random.Random(self.chance.getrandbits(64))

    def note(self, event: str) -> None:
        """Write into the timeline."""
        self.history.events.append(f"{self.scheduler.now:9.3f} s  {event}")

    def _committed(self) -> list[tuple[MessageQueue, int]]:
        return [
            (queue, offset)
            for queue in self.cluster.queues(_TOPIC)
            if (offset := self.cluster.committed(_GROUP, queue)) is not None
        ]

    def begin(self, faults: Sequence[Fault]) -> None:
        """Plan everything that happens by itself."""
        self.cluster.start()
        processes = ("driver", "executor-0", "executor-1", *(f"writer-{n}" for n in range(len(self.writers))))
        for fault in faults:
            self.scheduler.at(fault.at_s, lambda fault=fault: self._happen(fault, processes))
        self.heals_at_s = max((fault.at_s + fault.lasts_s for fault in faults), default=0.0) + 1.0
        self.scheduler.at(self.heals_at_s, self._heal)
        for writer in self.writers:
            self.scheduler.after(self.chance.uniform(0.0, 1.0), writer.start)
        self.scheduler.after(self.chance.uniform(0.0, 3.0), self.query.start)

    def _happen(self, fault: Fault, processes: tuple[str, ...]) -> None:
        self.note(str(fault))
        happen(
            fault,
            self.cluster,
            self.network,
            self.history,
            topic=_TOPIC,
            processes=processes,
            finished=self.query.finished,
            lossy=self.plan.lossy,
        )

    def _heal(self) -> None:
        self.note("everything is well again")
        self.network.heal()
        self.query.kills = Kills()
        for server in self.cluster.all_servers:
            server.mischief.clear()

    def done(self) -> bool:
        """Whether everything was written and read."""
        if self.scheduler.now < self.heals_at_s or not all(writer.done for writer in self.writers):
            return False
        read = {row.place for rows in self.history.batches.values() for row in rows}
        return self.logical_places().keys() - self.history.expired <= read

    def logical_places(self) -> dict:
        """Return the stored messages by their places as rows have them."""
        if not self.plan.static:
            return self.history.stored
        parts = {
            (part.broker, part.queue_id): (queue, part.begin)
            for queue in self.cluster.queues(_TOPIC)
            for part in self.cluster.parts(queue)
        }
        found = {}
        for (topic, broker, queue_id, offset), body in self.history.stored.items():
            queue, begin = parts[broker, queue_id]
            found[topic, queue.broker_name, queue.queue_id, begin + offset] = body
        return found


_CLIENT_OPTIONS: Final = ("requestTimeoutMs", "connectTimeoutMs", "routeRefreshMs")


def live(plan: Plan, faults: Sequence[Fault] | None = None) -> Verdict:
    """Live a life, with all of its faults or only some, and judge it."""
    world = _World(plan)
    world.begin(plan.faults if faults is None else faults)
    wrong: dict[str, list[str]] = {}
    try:
        if not world.scheduler.run(world.done, until_s=world.heals_at_s + _CATCHES_UP_S):
            stored, rows = len(world.history.stored), sum(map(len, world.history.batches.values()))
            writing = [writer for writer in world.writers if not writer.done]
            wrong["stalled"] = [f"{rows} of {stored} rows are read, {len(writing)} writers are not done"]
    except (Spinning, AssertionError, Exception) as failure:  # noqa: BLE001 - a life's outermost frame
        wrong["crashed"] = [f"{type(failure).__name__}: {failure}"]
    finally:
        world.scheduler.end()
    world.history.stored = world.logical_places()
    wrong |= judge(world.history)
    did = world.history.did
    for server in world.cluster.all_servers:
        did.update(server.happened)
    return Verdict(
        plan,
        wrong,
        world.scheduler.now,
        sum(map(len, world.history.batches.values())),
        did,
        world.history.events,
    )
