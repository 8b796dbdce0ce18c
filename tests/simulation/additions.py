"""What is added to a drawn plan, part by part: each draws from a source of its own."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from tests.simulation.direct import DirectPlanned
from tests.simulation.edge_answers import EDGE_KINDS, GOES_AWAY, REFUSED_FOR_GOOD, WEAK
from tests.simulation.group import GroupPlan
from tests.simulation.plan import HIDES, Plan
from tests.simulation.reshaping import draw_more_faults
from tests.simulation.scene import Fault
from tests.simulation.stage import Kills

__all__ = ["LAST_PARTS", "ONE_BY_ONE", "PARTS", "tuning"]

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

_MORE: Final = (
    "a queue is written no more",
    "a topic is read-only at a broker",
    "a master's index lags",
    "a slave becomes the master",
    "a topic is created again",
)

ONE_BY_ONE: Final = ("maxOffsetsPerTrigger", "maxRecordsPerPartition", "maxRatePerQueue")


def tuning(*, one_by_one: bool = True) -> dict[str, tuple[str, ...]]:
    """Return values of the options that decide how messages are read, and not which."""
    options = {
        "maxOffsetsPerTrigger": ("1", "13", "100", "1000"),
        "minPartitions": ("2", "7"),
        "maxRecordsPerPartition": ("5", "50"),
        "pullBatchSize": ("1", "7", "32", "1024"),
        "pullsInFlight": ("1", "2", "16"),
        "maxRatePerQueue": ("20", "50"),
    }
    return {name: values for name, values in options.items() if one_by_one or name not in ONE_BY_ONE}


def with_transactions(plan: Plan) -> Plan:
    """Have some sinks make batches visible as a whole, by drivers that may be replaced unknowingly."""
    chance = plan.own_chance("transactions")
    if plan.sink is None or plan.retires or plan.static or chance.random() < 0.5:
        return plan
    hostile = bool(plan.kills.driver) or chance.random() < 0.5
    kills = replace(plan.kills, midway=0.3, zombie=0.15) if hostile else plan.kills
    span_s = plan.last_fault_s(default=5.0)
    kinds = {"answers to commits of a transaction"} if chance.random() < 0.5 else set[str]()
    more = draw_more_faults(chance, span_s, kinds, (1, 3, 6))
    return replace(plan, sink=plan.sink.made_transactional(), kills=kills).with_faults(more)


def with_group(plan: Plan) -> Plan:
    """Have a group of push consumers read in the query's place."""
    chance = plan.own_chance("group")
    likes = not (plan.static or plan.lossy or plan.strict or plan.compacted or plan.retires)
    if not likes or chance.random() < 0.75:
        return plan
    span_s = plan.last_fault_s(default=10.0) + 10.0
    kinds = {"answers to members of a group"} if chance.random() < 0.5 else set[str]()
    more = draw_more_faults(chance, span_s, kinds, (1, 3, 6))
    return replace(plan, group=GroupPlan.drawn(chance, span_s)).with_faults(more)


def with_direct(plan: Plan) -> Plan:
    """Have a direct stream read in the query's place."""
    chance = plan.own_chance("direct")
    if plan.group is not None or plan.retires or plan.static or chance.random() < 0.8:
        return plan
    direct = DirectPlanned.drawn(chance)
    if plan.compacted:  # thousands of offsets without a message, which this would read one by one
        options = {name: it for name, it in direct.options.items() if name != "pull.max.speed.per.partition"}
        direct = replace(direct, options=options)
    return replace(plan, direct=direct)


def with_proxies(plan: Plan) -> Plan:
    """Give clients the addresses of proxies, in place of the name servers'."""
    chance = plan.own_chance("proxies")
    transactional = plan.sink is not None and plan.sink.transactional
    unknown = plan.group or plan.static or plan.compacted or plan.retires or transactional
    if unknown or chance.random() < 0.85:
        return plan
    span_s = plan.last_fault_s(default=5.0)
    more = draw_more_faults(chance, span_s, {"a proxy is away"}, (0, 1, 2))
    return replace(plan, proxies=chance.choice((1, 1, 2))).with_faults(more)


def with_job(plan: Plan) -> Plan:
    """Have a program read the whole topic with the batch reader, again and again."""
    again = any(fault.kind == "a topic is created again" for fault in plan.faults)
    if plan.static or plan.strict or plan.retires or again:
        return plan
    return replace(plan, job=plan.own_chance("job").random() < 0.12)


def with_narrow(plan: Plan) -> Plan:
    """Have one more reader, with little memory."""
    if plan.static or plan.compacted or plan.retires or plan.proxies:
        return plan
    return replace(plan, narrow=plan.own_chance("narrow").random() < 0.12)


def with_changes(plan: Plan) -> Plan:
    """Change the query's options each time that it is started again."""
    chance = plan.own_chance("changes")
    if plan.group is not None or plan.direct is not None or chance.random() < 0.7:
        return plan
    values_of = tuning(one_by_one=not (plan.compacted or plan.static))
    changes = tuple(
        {name: chance.choice(values) for name, values in values_of.items() if chance.random() < 0.4}
        | ({"startingOffsets": "latest"} if chance.random() < 0.3 else {})
        for _ in range(chance.choice((1, 2)))
    )
    kills = replace(plan.kills, driver=max(plan.kills.driver, 0.02))
    return replace(plan, changes=changes, kills=kills)


def with_other_machines(plan: Plan) -> Plan:
    """Have a direct stream started on machines with other clocks, and its checkpoints take long."""
    chance = plan.own_chance("other machines")
    if plan.direct is None or chance.random() < 0.6:
        return plan
    kills = replace(plan.kills, driver=max(plan.kills.driver, 0.1))
    return replace(plan, direct=plan.direct.on_other_machines(chance), kills=kills)


def with_bystanders(plan: Plan) -> Plan:
    """Have the only broker of the topic restart while another is there, and rows to be written.

    It is away for less time than a write waits for a topic that may not exist.
    """
    chance = plan.own_chance("bystanders")
    known = plan.static or plan.compacted or plan.lossy or plan.strict or plan.retires or plan.proxies
    if known or plan.sink is None or plan.group is not None or chance.random() < 0.5:
        return plan
    span_s = plan.last_fault_s(default=5.0)
    faults = [fault for fault in plan.faults if fault.kind in _HARMLESS]
    moments = [chance.uniform(0.5, span_s) for _ in range(chance.choice((1, 2, 3)))]
    faults += [
        Fault(at_s, "a master is killed", chance.choice((3.0, 8.0)), chance.getrandbits(32))
        for at_s in moments
    ]
    kills = replace(plan.kills, executor=0.2)
    changed = replace(plan, brokers=1, bystanders=1, slaves=0, faults=(), kills=kills)
    return changed.with_faults(faults)


def with_late_brokers(plan: Plan) -> Plan:
    """Have a broker with messages away when a query starts that is told another start later."""
    chance = plan.own_chance("late brokers")
    told = any("startingOffsets" in each for each in plan.changes)
    if not told or plan.brokers < 2 or plan.static or plan.retires or chance.random() < 0.3:
        return plan
    kills = replace(plan.kills, driver=max(plan.kills.driver, 0.1))
    moments = [chance.uniform(0.8, 2.5) for _ in range(2)]
    faults = [Fault(at_s, "a master is killed", 10.0, chance.getrandbits(32)) for at_s in moments]
    return replace(plan, kills=kills).with_faults(faults)


def with_commits(plan: Plan) -> Plan:
    """Have writes committed in a commit topic, and a query that reads only what is committed."""
    chance = plan.own_chance("commits")
    if plan.direct or not plan.may_commit:
        return plan
    return _with_staging(plan) if chance.random() < 0.5 else _made_committed(plan, chance)


def _made_committed(plan: Plan, chance: random.Random) -> Plan:
    assert plan.sink is not None
    options = {name: it for name, it in plan.options.items() if name not in _UNCOMMITTED}
    changes = tuple(
        {name: it for name, it in each.items() if name not in _UNCOMMITTED} for each in plan.changes
    )
    hostile = bool(plan.kills.driver) or chance.random() < 0.5
    # What the query has passed may be committed later.
    faults = [fault for fault in plan.faults if fault.kind != "retention deletes messages"]
    return replace(
        plan,
        sinks=chance.choice((1, 2)),
        sink=plan.sink.made_committed("committed"),
        options={**options, "isolation": "read_committed"},
        changes=changes,
        kills=replace(plan.kills, midway=0.3, zombie=0.15) if hostile else plan.kills,
        writers=chance.choice(((), ((20, 0.5, False),))),
        job=not plan.hides and not plan.direct and chance.random() < 0.4,
        faults=tuple(faults),
    )


def with_direct_commits(plan: Plan) -> Plan:
    """Have a direct stream read what is committed, in the query's place."""
    chance = plan.own_chance("direct commits")
    if chance.random() < 0.6:
        return plan
    if plan.direct and plan.may_commit:
        return _made_committed(plan, chance)
    if not plan.sinks or plan.staged or plan.hides:
        return plan
    return with_other_machines(replace(plan, direct=DirectPlanned.drawn(chance), changes=()))


def _with_staging(plan: Plan) -> Plan:
    """Have rows staged, and sent to their topic when they are committed.

    Without what the promise excludes: sends that arrive late, messages that expire, queues that may not
    be written.
    """
    chance = plan.own_chance("staging")
    if plan.sink is None or chance.random() < 0.2:
        return plan
    hostile = bool(plan.kills.driver) or chance.random() < 0.5
    span_s = plan.last_fault_s(default=5.0)
    changed = replace(
        plan,
        sinks=chance.choice((1, 2)),
        staged=True,
        sink=plan.sink.made_committed("staged"),
        habits=replace(plan.habits, bytes_per_s=max(plan.habits.bytes_per_s, 1e7)),
        kills=replace(plan.kills, midway=0.3, zombie=0.15) if hostile else plan.kills,
        faults=tuple(fault for fault in plan.faults if fault.kind not in _NOT_STAGED),
    )
    return changed.with_faults(draw_more_faults(chance, span_s, _MISSING_ANSWERS, (3, 6)))


def with_short_slaves(plan: Plan) -> Plan:
    """Have a query that has read a queue see only a slave that lacks some of it, while more comes."""
    chance = plan.own_chance("short slaves")
    special = plan.static or plan.compacted or plan.lossy or plan.strict or plan.retires
    others = plan.group or plan.direct or plan.sink or plan.proxies
    served = plan.slaves and plan.slave_readable and plan.brokers > 1
    if special or others or not served or chance.random() < 0.6:
        return plan
    at_s, lasts_s = chance.uniform(5.0, 15.0), chance.choice((12.0, 20.0, 45.0))
    gone = Fault(at_s, "a master is gone, and its slaves lag", lasts_s, chance.getrandbits(32))
    faults = tuple(fault for fault in plan.faults if fault.kind in _HARMLESS)
    options = {**plan.options, "routeRefreshMs": chance.choice(("1000", "5000"))}
    changed = replace(plan, writers=((100, 2.0, False),), options=options, faults=faults)
    return replace(changed, queues=chance.choice((1, 2))).with_faults([gone])


def with_forgetful_name_servers(plan: Plan) -> Plan:
    """Have new processes of a sink ask for its topic while brokers register at new name servers."""
    chance = plan.own_chance("forgetful name servers")
    special = plan.static or plan.compacted or plan.lossy or plan.strict or plan.retires or plan.proxies
    others = plan.sink is None or plan.sinks or plan.group or plan.bystanders or plan.check_s
    if special or others or chance.random() < 0.7:
        return plan
    span_s = plan.last_fault_s(default=5.0)
    moments = [chance.uniform(0.5, span_s) for _ in range(chance.choice((4, 8, 12)))]
    more = [Fault(at_s, "name servers forget", 0.1, chance.getrandbits(32)) for at_s in moments]
    return replace(plan, kills=replace(plan.kills, executor=0.3)).with_faults(more)


def with_checks(plan: Plan) -> Plan:
    """Have brokers ask about half messages, and a resolver that answers."""
    chance = plan.own_chance("checks")
    others = plan.sink is None or not plan.sink.transactional or plan.bystanders
    if others or chance.random() < 0.5:
        return plan
    return replace(plan, check_s=chance.choice((3.0, 10.0, 30.0)))


def with_removed_queues(plan: Plan) -> Plan:
    """Have queues closed, and removed when they are read: as the documentation says, and for good."""
    chance = plan.own_chance("removed queues")
    special = plan.lossy or plan.strict or plan.retires or plan.hides
    others = plan.sinks or plan.direct or (plan.sink is not None and plan.sink.transactional)
    if not plan.allowed[_CLOSES] or plan.queues < 2 or special or others or chance.random() < 0.6:
        return plan
    span_s = plan.last_fault_s(default=5.0)
    closed = draw_more_faults(chance, 4 * span_s, {_CLOSES}, (1, 2, 4))
    removed = [Fault(fault.at_s + chance.uniform(31.0, 40.0), _REMOVES, 10.0, fault.dice) for fault in closed]
    return replace(plan, queues=chance.choice((2, 3))).with_faults([*closed, *removed])


def with_hidden_queues(plan: Plan) -> Plan:
    """Have the topic's last queues hidden for a time, and shown again."""
    chance = plan.own_chance("hidden queues")
    if not plan.allowed[HIDES] or plan.queues < 2 or chance.random() < 0.9:
        return plan
    span_s = plan.last_fault_s(default=5.0)
    return plan.with_faults(draw_more_faults(chance, span_s, {HIDES}, (1, 2, 3)))


def with_more_faults(plan: Plan) -> Plan:
    """Add faults of topics and brokers where they are allowed."""
    chance = plan.own_chance("more faults")
    allowed = plan.allowed
    kinds = [kind for kind in _MORE if allowed[kind] and chance.random() < 0.25]
    more = draw_more_faults(chance, plan.last_fault_s(default=5.0), kinds)
    return plan.with_faults(more)


def with_slow_writes(plan: Plan) -> Plan:
    """Have more in flight than a slow link carries within the time-out of a send, and nothing else wrong."""
    chance = plan.own_chance("slow writes")
    special = plan.sinks or plan.check_s or plan.bystanders or plan.retires or plan.wanted.since_ms
    if plan.sink is None or plan.sink.transactional or special or chance.random() < 0.85:
        return plan
    options = {
        name: it for name, it in plan.sink.options.items() if name not in ("batchSize", "sendsInFlight")
    }
    sink = replace(plan.sink, batches=2, partitions=3, rows=20, options=options | {"sendTimeoutMs": "400"})
    habits = replace(plan.habits, bytes_per_s=1e5)
    return replace(plan, sink=sink, habits=habits, body_bytes=4_000, faults=(), kills=Kills())


def with_lost_proxies(plan: Plan) -> Plan:
    """Have the machine of a proxy go away, and come back, while a query reads much from it."""
    chance = plan.own_chance("lost proxies")
    others = plan.group or plan.direct or plan.sink or plan.aligned or plan.wanted.since_ms
    if not plan.proxies or others or chance.random() < 0.5:
        return plan
    options = {name: it for name, it in plan.options.items() if name not in tuning()}
    moments = [chance.uniform(3.0, 8.0) for _ in range(2)]
    return replace(
        plan,
        proxies=1,
        queues=8,
        writers=((100, 0.0, True),),
        options=options | {"requestTimeoutMs": "10000"},
        changes=(),
        habits=replace(plan.habits, bytes_per_s=1e5),
        kills=Kills(),
        body_bytes=4_000,
        faults=(),
    ).with_faults([Fault(at_s, "a proxy is away", 0.1, chance.getrandbits(32)) for at_s in moments])


def with_edge_answers(plan: Plan) -> Plan:
    """Have servers answer at the edge of the protocol."""
    chance = plan.own_chance("edge answers")
    if chance.random() < 0.6:
        return plan
    span_s = plan.last_fault_s(default=5.0)
    away = plan.bystanders or plan.retires
    kinds = [kind for kind in sorted(EDGE_KINDS) if plan.allowed.get(kind, True)]
    kinds = [kind for kind in kinds if kind not in REFUSED_FOR_GOOD and not (kind == GOES_AWAY and away)]
    some = chance.sample(kinds, chance.randint(1, 4))
    more = draw_more_faults(chance, span_s, some, (1, 2, 4))
    if chance.random() < 0.3 and (plan.sink is None or plan.sink.retries):
        more += draw_more_faults(chance, span_s, REFUSED_FOR_GOOD, (1,))
    if plan.sink is not None and WEAK.keys() & some and chance.random() < 0.5:
        plan = replace(plan, sink=plan.sink.made_content())
    return plan.with_faults(more)


def with_unknown_settings(plan: Plan) -> Plan:
    """Have readers that meet holes not be told at once whether the topic is compacted."""
    chance = plan.own_chance("unknown settings")
    if not (plan.compacted or plan.lossy or plan.strict) or chance.random() < 0.5:
        return plan
    span_s = plan.last_fault_s(default=5.0)
    if plan.compacted and not plan.sink and chance.random() < 0.9:  # what was asked waits for many messages
        plan = replace(plan, writers=((100, 0.0, False),), body_bytes=4_000, queues=chance.choice((1, 2)))
        habits = replace(plan.habits, bytes_per_s=1e5)
        options = plan.options | {"requestTimeoutMs": "800", "pullBatchSize": "7"}
        more = draw_more_faults(chance, 2.0, {"compaction"}, (8,))
        return replace(plan, habits=habits, options=options).with_faults(more)
    kinds = {"answers about a topic's settings"}
    return plan.with_faults(draw_more_faults(chance, span_s, kinds, (2, 4, 8)))


def with_lost_index(plan: Plan) -> Plan:
    """Have files of a queue's index deleted, in lives in which those of the log are."""
    chance = plan.own_chance("lost index")
    if not (plan.lossy or plan.strict) or chance.random() < 0.5:
        return plan
    span_s = plan.last_fault_s(default=5.0)
    return plan.with_faults(draw_more_faults(chance, span_s, {"an index file is deleted"}, (1, 2, 4)))


PARTS: Final = (
    with_transactions,
    with_more_faults,
    with_group,
    with_direct,
    with_proxies,
    with_job,
    with_narrow,
    with_changes,
    with_other_machines,
    with_bystanders,
    with_late_brokers,
    with_hidden_queues,
    with_commits,
    with_direct_commits,
    with_removed_queues,
    with_checks,
    with_short_slaves,
    with_forgetful_name_servers,
)
"""In their order. What one draws does not change what others do."""

LAST_PARTS: Final = (
    with_slow_writes,
    with_lost_proxies,
    with_edge_answers,
    with_unknown_settings,
    with_lost_index,
)
"""Those that need to know all others."""
