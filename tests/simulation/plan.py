"""The plan of a life: everything that its seed chooses before it begins."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tests.simulation.direct import DirectPlanned
from tests.simulation.faults import Fault, draw_faults
from tests.simulation.group import GroupPlan
from tests.simulation.network import Habits
from tests.simulation.reshaping import draw_more_faults
from tests.simulation.sink import SinkPlan
from tests.simulation.stage import Accident, Kills

from pyspark_rocketmq.testing.log import PullLimits

__all__ = ["GROUP", "Plan"]

GROUP: Final = "report"
_MISSING_ANSWERS: Final = ("send: executed, no answer", "send: executed, connection closed")
_NOT_STAGED: Final = frozenset(
    {
        "a master pauses",
        "a partition",
        "a queue is hidden",
        "a queue is written no more",
        "a topic is read-only at a broker",
        "retention deletes messages",
    }
)
"""Faults that the promise of staged writes excludes."""
_UNCOMMITTED: Final = frozenset({"consumerGroup", "commitIntervalMs", "maxRatePerQueue"})
"""Options of a query that cannot be combined with reading only what is committed."""
_HIDES: Final = "a queue is hidden"
_CLOSES: Final = "a queue is written no more"
_REMOVES: Final = "a closed queue is removed"
_HARMLESS: Final = frozenset(
    {
        "connections are closed",
        "a queue is added",
        "limits of an answer change",
        "retention deletes messages",
        "the driver's clock jumps",
        "answers to commits of a transaction",
    }
)
"""Faults with which no broker of the topic is away for long."""
_LAGS: Final = ("a slave lags", "a master is gone, and its slaves lag")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a seed chooses before a life begins. The defaults are the plainest life."""

    seed: int = 0
    brokers: int = 1
    name_servers: int = 1
    slaves: int = 0
    slave_readable: bool = True
    queues: int = 1
    static: bool = False
    compacted: bool = False
    lossy: bool = False
    """Messages are deleted that were not read, and the query is told to go on."""
    strict: bool = False
    """Messages are deleted that were not read, and the query has to end."""
    retires: bool = False
    """A master is lost whose slaves have everything."""
    limits: PullLimits = PullLimits()  # noqa: RUF009 - frozen
    habits: Habits = Habits()  # noqa: RUF009 - frozen
    kills: Kills = Kills()  # noqa: RUF009 - frozen
    options: dict[str, str] = field(default_factory=lambda: {"startingOffsets": "earliest"})
    changes: tuple[dict[str, str], ...] = ()
    """Options of the query that it has when it is started again, see `Query`."""
    available_now: bool = False
    trigger_s: float = 0.5
    skew_ms: int = 0
    writers: tuple[tuple[int, float, bool], ...] = ()
    sink: SinkPlan | None = None
    body_bytes: int = 1
    faults: tuple[Fault, ...] = ()
    group: GroupPlan | None = None
    """The members that read in the query's place."""
    sinks: int = 0
    """Streaming writes that are committed in a commit topic; 0: others."""
    staged: bool = False
    """Whether they send their rows to a staging topic, instead of a query that reads the commit topic."""
    bystanders: int = 0
    """Brokers that do not have the topic: name servers know them while none of the topic's is registered."""
    proxies: int = 0
    job: bool = False
    """Whether a program reads the whole topic, again and again."""
    narrow: bool = False
    """Whether a reader with little memory reads the topic, too."""
    direct: DirectPlanned | None = None
    """The direct stream that reads in the query's place."""
    check_s: float = 0.0
    """How often brokers ask about half messages, which a resolver answers; 0: never."""
    accidents: tuple[Accident, ...] | None = None
    """What strikes actors, if it is listed instead of drawn."""

    @property
    def sound(self) -> bool:
        """Whether nothing may be wrong in such a life: what it does to the query, the query can survive."""
        if self.lossy and self.options.get("failOnDataLoss") != "false":
            return False
        if self.strict and self.options.get("failOnDataLoss") == "false":
            return False
        served = self.slaves > 0 and self.slave_readable and self.brokers > 1
        if self.retires and (not served or self.lossy or self.strict):
            return False
        if not self.retires and any(fault.kind == "a master is gone for good" for fault in self.faults):
            return False
        return all(self._allowed.get(fault.kind, True) for fault in self.faults)

    @classmethod
    def of(cls, seed: int) -> Plan:
        """Draw a plan."""
        return (
            cls._drawn(seed)
            ._with_transactions()
            ._with_more_faults()
            ._with_group()
            ._with_direct()
            ._with_proxies()
            ._with_job()
            ._with_narrow()
            ._with_changes()
            ._with_other_machines()
            ._with_bystanders()
            ._with_late_brokers()
            ._with_hidden_queues()
            ._with_commits()
            ._with_direct_commits()
            ._with_removed_queues()
            ._with_checks()
            ._with_short_slaves()
        )

    @property
    def _binds(self) -> bool:
        """Whether messages have to go to queues of the writer's choice."""
        return any(ordered for *_, ordered in self.writers) or (self.sink is not None and self.sink.keyed)

    @property
    def _hides(self) -> bool:
        return any(fault.kind == _HIDES for fault in self.faults)

    def _own_chance(self, what: str) -> random.Random:
        """A source of its own for each later part: what one draws does not change what others do."""
        return random.Random(f"{self.seed} {what}")

    @property
    def _allowed(self) -> dict[str, bool]:
        """Whether nothing may go wrong with some kinds of faults."""
        return {
            # What is bound to a queue that is written no more is refused, as it should be.
            "a queue is written no more": not self.static and not self._binds,
            "a topic is read-only at a broker": not self.static,
            # Of a static topic's queue that has moved, what is not shown now is passed.
            "a master's index lags": not self.strict and not self.static,
            "a slave becomes the master": bool(self.slaves) and not self.retires,
            "a topic is created again": (self.lossy or self.strict) and self.sink is None,
            # A batch that is read meanwhile lacks it; without an error, what was planned with it is passed.
            "a queue is hidden": not (self.static or self.lossy or self.strict or self.retires or self.job),
        }

    def _with_transactions(self) -> Plan:
        """Have some sinks make batches visible as a whole, by drivers that may be replaced unknowingly."""
        chance = self._own_chance("transactions")
        if self.sink is None or self.retires or self.static or chance.random() < 0.5:
            return self
        hostile = bool(self.kills.driver) or chance.random() < 0.5
        kills = replace(self.kills, midway=0.3, zombie=0.15) if hostile else self.kills
        span_s = max((fault.at_s for fault in self.faults), default=5.0)
        kinds = {"answers to commits of a transaction"} if chance.random() < 0.5 else set[str]()
        more = draw_more_faults(chance, span_s, kinds, (1, 3, 6))
        return replace(self, sink=self.sink.made_transactional(), kills=kills)._with_faults(more)

    def _with_group(self) -> Plan:
        """Have a group of push consumers read in the query's place."""
        chance = self._own_chance("group")
        likes = not (self.static or self.lossy or self.strict or self.compacted or self.retires)
        if not likes or chance.random() < 0.75:
            return self
        span_s = max((fault.at_s for fault in self.faults), default=10.0) + 10.0
        kinds = {"answers to members of a group"} if chance.random() < 0.5 else set[str]()
        more = draw_more_faults(chance, span_s, kinds, (1, 3, 6))
        return replace(self, group=GroupPlan.drawn(chance, span_s))._with_faults(more)

    def _with_direct(self) -> Plan:
        """Have a direct stream read in the query's place."""
        chance = self._own_chance("direct")
        if self.group is not None or self.retires or self.static or chance.random() < 0.8:
            return self
        direct = DirectPlanned.drawn(chance)
        if self.compacted:  # thousands of offsets without a message, which this would read one by one
            options = {
                name: it for name, it in direct.options.items() if name != "pull.max.speed.per.partition"
            }
            direct = replace(direct, options=options)
        return replace(self, direct=direct)

    def _with_proxies(self) -> Plan:
        """Give clients the addresses of proxies, in place of the name servers'."""
        chance = self._own_chance("proxies")
        transactional = self.sink is not None and self.sink.transactional
        unknown = self.group or self.static or self.compacted or self.retires or transactional
        if unknown or chance.random() < 0.85:
            return self
        span_s = max((fault.at_s for fault in self.faults), default=5.0)
        more = draw_more_faults(chance, span_s, {"a proxy is away"}, (0, 1, 2))
        return replace(self, proxies=chance.choice((1, 1, 2)))._with_faults(more)

    def _with_job(self) -> Plan:
        """Have a program read the whole topic with the batch reader, again and again."""
        again = any(fault.kind == "a topic is created again" for fault in self.faults)
        if self.static or self.strict or self.retires or again:
            return self
        return replace(self, job=self._own_chance("job").random() < 0.12)

    def _with_narrow(self) -> Plan:
        """Have one more reader, with little memory."""
        if self.static or self.compacted or self.retires or self.proxies:
            return self
        return replace(self, narrow=self._own_chance("narrow").random() < 0.12)

    def _with_changes(self) -> Plan:
        """Change the query's options each time that it is started again."""
        chance = self._own_chance("changes")
        if self.group is not None or self.direct is not None or chance.random() < 0.7:
            return self
        tuning = _tuning(one_by_one=not (self.compacted or self.static))
        changes = tuple(
            {name: chance.choice(values) for name, values in tuning.items() if chance.random() < 0.4}
            | ({"startingOffsets": "latest"} if chance.random() < 0.3 else {})
            for _ in range(chance.choice((1, 2)))
        )
        kills = replace(self.kills, driver=max(self.kills.driver, 0.02))
        return replace(self, changes=changes, kills=kills)

    def _with_other_machines(self) -> Plan:
        """Have a direct stream started on machines with other clocks, and its checkpoints take long."""
        chance = self._own_chance("other machines")
        if self.direct is None or chance.random() < 0.6:
            return self
        kills = replace(self.kills, driver=max(self.kills.driver, 0.1))
        return replace(self, direct=self.direct.on_other_machines(chance), kills=kills)

    def _with_bystanders(self) -> Plan:
        """Have the only broker of the topic restart while another is there, and rows to be written.

        It is away for less time than a write waits for a topic that may not exist.
        """
        chance = self._own_chance("bystanders")
        known = self.static or self.compacted or self.lossy or self.strict or self.retires or self.proxies
        if known or self.sink is None or self.group is not None or chance.random() < 0.5:
            return self
        span_s = max((fault.at_s for fault in self.faults), default=5.0)
        faults = [fault for fault in self.faults if fault.kind in _HARMLESS]
        moments = [chance.uniform(0.5, span_s) for _ in range(chance.choice((1, 2, 3)))]
        faults += [
            Fault(at_s, "a master is killed", chance.choice((3.0, 8.0)), chance.getrandbits(32))
            for at_s in moments
        ]
        kills = replace(self.kills, executor=0.2)
        plan = replace(self, brokers=1, bystanders=1, slaves=0, faults=(), kills=kills)
        return plan._with_faults(faults)

    def _with_late_brokers(self) -> Plan:
        """Have a broker with messages away when a query starts that is told another start later."""
        chance = self._own_chance("late brokers")
        told = any("startingOffsets" in each for each in self.changes)
        if not told or self.brokers < 2 or self.static or self.retires or chance.random() < 0.3:
            return self
        kills = replace(self.kills, driver=max(self.kills.driver, 0.1))
        moments = [chance.uniform(0.8, 2.5) for _ in range(2)]
        faults = [Fault(at_s, "a master is killed", 10.0, chance.getrandbits(32)) for at_s in moments]
        return replace(self, kills=kills)._with_faults(faults)

    def _with_commits(self) -> Plan:
        """Have writes committed in a commit topic, and a query that reads only what is committed."""
        chance = self._own_chance("commits")
        if self.direct or not self._may_commit:
            return self
        return self._with_staging() if chance.random() < 0.5 else self._made_committed(chance)

    @property
    def _may_commit(self) -> bool:
        """Whether the sink can be one that commits its batches in a commit topic."""
        special = self.static or self.compacted or self.lossy or self.strict or self.retires or self.proxies
        others = self.group or self.job or self.narrow or self.bystanders or self.sinks
        return self.sink is not None and not special and not others

    def _made_committed(self, chance: random.Random) -> Plan:
        assert self.sink is not None
        options = {name: it for name, it in self.options.items() if name not in _UNCOMMITTED}
        changes = tuple(
            {name: it for name, it in each.items() if name not in _UNCOMMITTED} for each in self.changes
        )
        hostile = bool(self.kills.driver) or chance.random() < 0.5
        # What the query has passed may be committed later.
        faults = [fault for fault in self.faults if fault.kind != "retention deletes messages"]
        return replace(
            self,
            sinks=chance.choice((1, 2)),
            sink=self.sink.made_committed("committed"),
            options={**options, "isolation": "read_committed"},
            changes=changes,
            kills=replace(self.kills, midway=0.3, zombie=0.15) if hostile else self.kills,
            writers=chance.choice(((), ((20, 0.5, False),))),
            job=not self._hides and not self.direct and chance.random() < 0.4,
            faults=tuple(faults),
        )

    def _with_direct_commits(self) -> Plan:
        """Have a direct stream read what is committed, in the query's place."""
        chance = self._own_chance("direct commits")
        if chance.random() < 0.6:
            return self
        if self.direct and self._may_commit:
            return self._made_committed(chance)
        if not self.sinks or self.staged or self._hides:
            return self
        return replace(self, direct=DirectPlanned.drawn(chance), changes=())._with_other_machines()

    def _with_staging(self) -> Plan:
        """Have rows staged, and sent to their topic when they are committed.

        Without what the promise excludes: sends that arrive late, messages that expire, queues that may not
        be written.
        """
        chance = self._own_chance("staging")
        if self.sink is None or chance.random() < 0.2:
            return self
        hostile = bool(self.kills.driver) or chance.random() < 0.5
        span_s = max((fault.at_s for fault in self.faults), default=5.0)
        plan = replace(
            self,
            sinks=chance.choice((1, 2)),
            staged=True,
            sink=self.sink.made_committed("staged"),
            habits=replace(self.habits, bytes_per_s=max(self.habits.bytes_per_s, 1e7)),
            kills=replace(self.kills, midway=0.3, zombie=0.15) if hostile else self.kills,
            faults=tuple(fault for fault in self.faults if fault.kind not in _NOT_STAGED),
        )
        return plan._with_faults(draw_more_faults(chance, span_s, _MISSING_ANSWERS, (3, 6)))

    def _with_short_slaves(self) -> Plan:
        """Have a query that has read a queue see only a slave that lacks some of it, while more comes."""
        chance = self._own_chance("short slaves")
        special = self.static or self.compacted or self.lossy or self.strict or self.retires
        others = self.group or self.direct or self.sink or self.proxies
        served = self.slaves and self.slave_readable and self.brokers > 1
        if special or others or not served or chance.random() < 0.6:
            return self
        at_s, lasts_s = chance.uniform(5.0, 15.0), chance.choice((12.0, 20.0, 45.0))
        gone = Fault(at_s, "a master is gone, and its slaves lag", lasts_s, chance.getrandbits(32))
        faults = tuple(fault for fault in self.faults if fault.kind in _HARMLESS)
        options = {**self.options, "routeRefreshMs": chance.choice(("1000", "5000"))}
        plan = replace(self, writers=((100, 2.0, False),), options=options, faults=faults)
        return replace(plan, queues=chance.choice((1, 2)))._with_faults([gone])

    def _with_checks(self) -> Plan:
        """Have brokers ask about half messages, and a resolver that answers."""
        chance = self._own_chance("checks")
        if self.sink is None or not self.sink.transactional or chance.random() < 0.5:
            return self
        return replace(self, check_s=chance.choice((3.0, 10.0, 30.0)))

    def _with_removed_queues(self) -> Plan:
        """Have queues closed, and removed when they are read: as the documentation says, and for good."""
        chance = self._own_chance("removed queues")
        others = self.lossy or self.strict or self.sinks or self.direct or self._hides
        transactional = self.sink is not None and self.sink.transactional
        if not self._allowed[_CLOSES] or self.queues < 2 or others or transactional or chance.random() < 0.6:
            return self
        span_s = max((fault.at_s for fault in self.faults), default=5.0)
        closed = draw_more_faults(chance, 4 * span_s, {_CLOSES}, (1, 2, 4))
        removed = [
            Fault(fault.at_s + chance.uniform(31.0, 40.0), _REMOVES, 10.0, fault.dice) for fault in closed
        ]
        return replace(self, queues=chance.choice((2, 3)))._with_faults([*closed, *removed])

    def _with_hidden_queues(self) -> Plan:
        """Have the topic's last queues hidden for a time, and shown again."""
        chance = self._own_chance("hidden queues")
        if not self._allowed[_HIDES] or self.queues < 2 or chance.random() < 0.9:
            return self
        span_s = max((fault.at_s for fault in self.faults), default=5.0)
        return self._with_faults(draw_more_faults(chance, span_s, {_HIDES}, (1, 2, 3)))

    def _with_more_faults(self) -> Plan:
        """Add faults of topics and brokers where they are allowed."""
        chance = self._own_chance("more faults")
        kinds = [
            kind for kind, may in self._allowed.items() if may and kind != _HIDES and chance.random() < 0.25
        ]
        more = draw_more_faults(chance, max((fault.at_s for fault in self.faults), default=5.0), kinds)
        return self._with_faults(more)

    def _with_faults(self, more: Sequence[Fault]) -> Plan:
        return replace(self, faults=tuple(sorted((*self.faults, *more), key=lambda fault: fault.at_s)))

    @classmethod
    def _drawn(cls, seed: int) -> Plan:
        chance = random.Random(seed)
        one_of = chance.choice
        options = {
            "startingOffsets": "earliest",
            "requestTimeoutMs": one_of(("800", "2000", "10000")),
            "connectTimeoutMs": one_of(("500", "3000")),
            "routeRefreshMs": one_of(("1000", "5000", "30000")),
        }
        for name, values in _tuning().items():
            if chance.random() < 0.3:
                options[name] = one_of(values)
        if chance.random() < 0.5:
            options |= {"consumerGroup": GROUP, "commitIntervalMs": one_of(("0", "1000", "5000"))}
        static = chance.random() < 0.1
        lossy = not static and chance.random() < 0.2
        compacted = not static and chance.random() < 0.1
        slaves = 0 if static else one_of((0, 0, 1, 2))
        strict = not static and not lossy and not compacted and chance.random() < 0.1
        # What the slave has not either is waited for: only a master may say that it is gone.
        retires = bool(slaves) and chance.random() < 0.25 and not lossy and not strict
        features = {
            "a static topic moves": static,
            "compaction": compacted,
            "retention deletes messages": lossy,
            "a log file is deleted": lossy or strict,
            "a slave lags": bool(slaves) and not retires,
            "a master is gone, and its slaves lag": bool(slaves) and not retires,
            "a master is gone for good": retires,
        }
        likely = [kind for kind, has in features.items() if has]
        options["failOnDataLoss"] = str(not lossy).lower()
        if compacted or static:  # thousands of offsets without a message, which these would read one by one
            for name in _ONE_BY_ONE:
                options.pop(name, None)
        span_s = one_of((2.0, 5.0, 15.0))
        # A batch of one message each: few of them are enough.
        messages = (10,) if options.get("maxOffsetsPerTrigger") == "1" else (20, 50, 100)
        sink = (
            SinkPlan.drawn(chance, span_s, keyed=False if retires else None)
            if chance.random() < 0.4
            else None
        )
        return cls(
            seed=seed,
            brokers=2 if static or retires else one_of((1, 2, 2, 3)),
            name_servers=one_of((1, 2, 3)),
            slaves=slaves,
            slave_readable=retires or chance.random() < 0.5,
            queues=one_of((1, 2, 4, 8)),
            static=static,
            compacted=compacted,
            lossy=lossy,
            strict=strict,
            retires=retires,
            limits=PullLimits(one_of((1, 8, 32, 32)), one_of((300, 1 << 18))),
            habits=Habits(
                delay_s=one_of((0.0001, 0.001, 0.02)),
                jitter_s=one_of((0.0, 0.001, 0.02)),
                bytes_per_s=one_of((1e5, 1e7, 1e9)),
                short_reads=one_of((0.0, 0.0, 0.2)),
                short_sends=one_of((0.0, 0.0, 0.2)),
                tls=chance.random() < 0.2,
            ),
            kills=one_of((Kills(), Kills(0.02, 0.0, 0.1), Kills(0.05, 0.05, 0.3))),
            options=options,
            available_now=chance.random() < 0.25,
            trigger_s=one_of((0.5, 2.0, 5.0)),
            skew_ms=one_of((0, 0, -30_000, 3_600_000)),
            writers=()
            if sink
            else tuple(_writers(chance, messages, span_s, orders=(False,) if retires else (False, True))),
            sink=sink,
            body_bytes=one_of((1, 1, 200, 4_000)),
            faults=tuple(draw_faults(chance, span_s, likely, _LAGS if retires else ())),
        )


_ONE_BY_ONE: Final = ("maxOffsetsPerTrigger", "maxRecordsPerPartition", "maxRatePerQueue")


def _tuning(*, one_by_one: bool = True) -> dict[str, tuple[str, ...]]:
    """Return values of the options that decide how messages are read, and not which."""
    options = {
        "maxOffsetsPerTrigger": ("1", "13", "100", "1000"),
        "minPartitions": ("2", "7"),
        "maxRecordsPerPartition": ("5", "50"),
        "pullBatchSize": ("1", "7", "32", "1024"),
        "pullsInFlight": ("1", "2", "16"),
        "maxRatePerQueue": ("20", "50"),
    }
    return {name: values for name, values in options.items() if one_by_one or name not in _ONE_BY_ONE}


def _writers(
    chance: random.Random, messages: Sequence[int], span_s: float, orders: Sequence[bool]
) -> Iterator[tuple[int, float, bool]]:
    """Draw writers that need nearly no time, or about ``span_s``."""
    for ordered in chance.sample(orders, chance.randint(1, len(orders))):
        count = chance.choice(messages)
        yield count, chance.choice((0.0, 1.0, 1.0)) * span_s * 10 / count, ordered
