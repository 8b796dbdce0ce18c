"""What is added to a drawn plan after `additions`: clocks of brokers, starts by time, filters, options."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.simulation.group import WITHIN, Move
from tests.simulation.plan import Plan
from tests.simulation.reshaping import draw_more_faults
from tests.simulation.scene import Fault
from tests.simulation.scheduler import EPOCH_MS
from tests.simulation.wanted import Wanted

__all__ = ["SELECTING_PARTS"]

_SINK_OPTIONS: Final = {
    "batchSize": ("1", "3", "17"),
    "sendsInFlight": ("1", "2", "16"),
    "sendTimeoutMs": ("400", "2000"),
}
"""Options of a write that decide how rows are sent, and not which."""


def with_broker_clocks(plan: Plan) -> Plan:
    """Give brokers clocks of their own, of which some are set meanwhile."""
    chance = plan.own_chance("broker clocks")
    if chance.random() < 0.8:
        return plan
    ahead_ms = (0, 2_000, -2_000, 30_000, -30_000, 3_600_000)
    clocked = replace(plan, clocks_ms=tuple(chance.choice(ahead_ms) for _ in range(3)))
    kinds = {"a broker's clock jumps ahead", "a broker's clock is set back"}
    span_s = plan.last_fault_s(default=5.0)
    more = draw_more_faults(chance, span_s, {kind for kind in kinds if plan.allowed[kind]}, (0, 1, 3))
    return clocked.with_faults(more)


def with_start_by_time(plan: Plan) -> Plan:
    """Have the reader begin with messages of a time, by brokers' clocks."""
    chance = plan.own_chance("start by time")
    transactional = plan.sinks or (plan.sink is not None and plan.sink.transactional)
    # The times of a static topic's queue that moves to a broker whose clock is behind do not ascend.
    apart = plan.static and any(plan.clocks_ms)
    if plan.group is not None or transactional or apart or chance.random() < 0.88:
        return plan
    starts_s = chance.choice((2.0, 4.0, 8.0))
    since_ms = EPOCH_MS + round(starts_s * 1000) + plan.slowest_ms
    timed = replace(
        plan,
        wanted=Wanted(since_ms=since_ms),
        skew_ms=max(plan.skew_ms, plan.slowest_ms),
        # Another start means nothing once a batch is planned.
        changes=tuple({**each, "startingTimestamp": "now"} for each in plan.changes),
    )
    faults = tuple(fault for fault in plan.faults if timed.allowed.get(fault.kind, True))
    timed = replace(timed, faults=faults)
    if plan.static or plan.retires or chance.random() < 0.4:
        return timed
    away = [
        Fault(starts_s + chance.uniform(-1.0, 1.0), "a master is killed", 10.0, chance.getrandbits(32))
        for _ in range(2)
    ]
    return timed.with_faults(away)


def with_filter(plan: Plan) -> Plan:
    """Have the reader take only messages with some tags, by tags or by SQL."""
    chance = plan.own_chance("filter")
    # Of deleted messages, a filter hides what it would have left out, and what not.
    if plan.sink is not None or plan.static or plan.strict or chance.random() < 0.85:
        return plan
    by_sql = not plan.proxies and chance.random() < 0.4
    tags = chance.choice((("c",), ("c", "d")) if by_sql else (("Aa",), ("Aa", "c"), ("d",)))
    return replace(plan, wanted=replace(plan.wanted, tags=tags, by_sql=by_sql))


def with_alignment(plan: Plan) -> Plan:
    """Have the query align its queues by store time."""
    chance = plan.own_chance("alignment")
    special = plan.static or plan.sinks or plan.hides or plan.retires
    if plan.group is not None or plan.direct is not None or special or chance.random() < 0.88:
        return plan
    options = {
        **plan.options,
        "eventTimeAlignment": "store",
        "includeAlignedTimestamp": "true",
        # A compacted topic has thousands of offsets without a message.
        "maxOffsetsPerTrigger": chance.choice(("300", "600") if plan.compacted else ("8", "20", "40")),
    }
    aligned = replace(plan, options=options, skew_ms=chance.choice((0, 2_000, -30_000)))
    aligned = replace(aligned, skew_ms=max(aligned.skew_ms, plan.slowest_ms))
    faults = tuple(fault for fault in plan.faults if aligned.allowed.get(fault.kind, True))
    return replace(aligned, faults=faults)


def with_sink_changes(plan: Plan) -> Plan:
    """Change the options of a write each time that it is started again."""
    chance = plan.own_chance("sink changes")
    if plan.sink is None or chance.random() < 0.8:
        return plan
    changes = tuple(
        {name: chance.choice(values) for name, values in _SINK_OPTIONS.items() if chance.random() < 0.6}
        for _ in range(2)
    )
    kills = replace(plan.kills, driver=max(plan.kills.driver, 0.1))
    return replace(plan, sink=replace(plan.sink, changes=changes), kills=kills)


def with_dead_letters(plan: Plan) -> Plan:
    """Have rows among those of a write that cannot be sent."""
    chance = plan.own_chance("dead letters")
    if plan.sink is None or plan.narrow or chance.random() < 0.75:
        return plan
    return replace(plan, sink=plan.sink.made_flawed(chance))


def with_damage(plan: Plan) -> Plan:
    """Have messages that do not decode, and a reader that passes them, or gives out nulls."""
    chance = plan.own_chance("damage")
    # A filter hides some of them; of a transactional write, messages are searched for.
    transactional = plan.sinks or (plan.sink is not None and plan.sink.transactional)
    special = plan.static or plan.wanted.tags
    if transactional or plan.group or special or chance.random() < 0.85:
        return plan
    policy = "skip" if plan.direct else chance.choice(("null", "skip"))
    return replace(plan, options={**plan.options, "onCorrupt": policy})


def with_receivers(plan: Plan) -> Plan:
    """Have the members of a group store blocks, as receivers do."""
    chance = plan.own_chance("receivers")
    if plan.group is None or plan.group.options.ordered or chance.random() < 0.5:
        return plan
    return replace(plan, group=replace(plan.group, receives=True))


def with_freezes_within_requests(plan: Plan) -> Plan:
    """Have members of a group freeze within a request, some until others have their queues."""
    chance = plan.own_chance("freezes within requests")
    if plan.group is None or plan.group.slots < 2 or chance.random() < 0.5:
        return plan
    span_s = plan.last_fault_s(default=10.0)
    more = [
        Move(
            chance.uniform(0.5, span_s),
            chance.randrange(plan.group.slots),
            WITHIN,
            chance.choice((5.0, 20.0, 70.0, 200.0)),
        )
        for _ in range(chance.choice((1, 2, 4)))
    ]
    moves = tuple(sorted([*plan.group.moves, *more], key=lambda move: move.at_s))
    return replace(plan, group=replace(plan.group, moves=moves))


SELECTING_PARTS: Final = (
    with_broker_clocks,
    with_start_by_time,
    with_filter,
    with_alignment,
    with_sink_changes,
    with_dead_letters,
    with_damage,
    with_receivers,
    with_freezes_within_requests,
)
"""In their order."""
