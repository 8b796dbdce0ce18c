"""Draws the plan of a life from its seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from tests.simulation.additions import LAST_PARTS, ONE_BY_ONE, PARTS, tuning
from tests.simulation.faults import draw_faults
from tests.simulation.network import Habits
from tests.simulation.plan import GROUP, Plan
from tests.simulation.selecting import SELECTING_PARTS
from tests.simulation.sink import SinkPlan
from tests.simulation.stage import Kills

from pyspark_rocketmq.testing.log import PullLimits

__all__ = ["draw_plan"]

_LAGS: Final = ("a slave lags", "a master is gone, and its slaves lag")


def draw_plan(seed: int) -> Plan:
    """Draw everything that a life needs."""
    plan = _draw(seed)
    for add in (*PARTS, *SELECTING_PARTS, *LAST_PARTS):
        plan = add(plan)
    return plan


def _draw(seed: int) -> Plan:
    chance = random.Random(seed)
    one_of = chance.choice
    options = {
        "startingOffsets": "earliest",
        "requestTimeoutMs": one_of(("800", "2000", "10000")),
        "connectTimeoutMs": one_of(("500", "3000")),
        "routeRefreshMs": one_of(("1000", "5000", "30000")),
    }
    for name, values in tuning().items():
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
        for name in ONE_BY_ONE:
            options.pop(name, None)
    span_s = one_of((2.0, 5.0, 15.0))
    # A batch of one message each: few of them are enough.
    messages = (10,) if options.get("maxOffsetsPerTrigger") == "1" else (20, 50, 100)
    sink = SinkPlan.drawn(chance, span_s, keyed=False if retires else None) if chance.random() < 0.4 else None
    return Plan(
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


def _writers(
    chance: random.Random, messages: Sequence[int], span_s: float, orders: Sequence[bool]
) -> Iterator[tuple[int, float, bool]]:
    """Draw writers that need nearly no time, or about ``span_s``."""
    for ordered in chance.sample(orders, chance.randint(1, len(orders))):
        count = chance.choice(messages)
        yield count, chance.choice((0.0, 1.0, 1.0)) * span_s * 10 / count, ordered
