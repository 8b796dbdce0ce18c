"""One life, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.simulation.faults import RESHAPING
from tests.simulation.judges import judge
from tests.simulation.plan import Plan
from tests.simulation.scheduler import Spinning
from tests.simulation.stage import Accident
from tests.simulation.world import TOPIC, World

from pyspark_rocketmq.model.names import staging_topic_of

__all__ = ["Verdict", "live"]

_CATCHES_UP_S: Final = 400.0
"""A query that is not done this long after the last fault is stalled."""


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
        What happened how often.
    events : sequence of str
        The timeline.
    accidents : tuple of Accident
        What struck actors.
    digest : str
        Of all that happened: the same for the same plan.
    """

    plan: Plan
    wrong: dict[str, list[str]]
    took_s: float
    rows: int
    did: Counter[str]
    events: Sequence[str]
    accidents: tuple[Accident, ...]
    digest: str = ""


def live(plan: Plan) -> Verdict:
    """Live a life, and judge it."""
    world = World(plan)
    history, queues = world.history, world.cluster.queues(TOPIC)
    wrong: dict[str, list[str]] = {}
    try:
        if not world.scheduler.run(world.done, until_s=world.heals_at_s + _CATCHES_UP_S):
            rows, writing = len(history.read), [one for one in world.writers if not one.done]
            stored = f"{rows} of {len(history.stored)} rows are read"
            left = f"{world.checks.open} half messages have no end" if world.checks else ""
            job = "the batch job is not done" if world.job and not world.job.done else ""
            what = (stored, f"{len(writing)} writers are not done", left, job)
            wrong["stalled"] = [", ".join(filter(None, what))]
    except (Spinning, AssertionError, Exception) as failure:  # noqa: BLE001 - a life's outermost frame
        wrong[f"crashed: {type(failure).__name__}"] = [str(failure)]
    finally:
        world.scheduler.end()
        world.clean_up()
    for rows in history.batches.values():
        rows.sort(key=lambda row: row.place)
    history.did.update(world.cluster.happened)
    history.stored = dict(world.logical_places(history.stored))
    history.unwanted = dict(world.logical_places(history.unwanted))
    history.stored |= {place: body for place, body in history.marked.items() if place in history.read}
    history.expired |= world.out_of_reach()
    history.strict, history.finished = plan.strict, world.reader.finished
    history.begun = world.reader.begun
    # The staged rows of a queue are appended to the queue of the same number.
    written = {TOPIC, staging_topic_of(TOPIC, None)}
    if not plan.static and not RESHAPING & history.did.keys() and not written & world.cluster.partial_routes:
        history.queues = queues
    wrong |= judge(history)
    if "unexpected error" in wrong:
        wrong.pop("lost", None)  # the life has ended there
    history.did.update(world.reached())
    return Verdict(
        plan,
        wrong,
        world.scheduler.now,
        len(history.read),
        history.did,
        history.events,
        tuple(world.stage.accidents),
        history.digest(),
    )
