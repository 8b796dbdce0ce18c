"""Faults of topics and brokers: queues that are closed, topics that are created again, masters that switch.

They are drawn apart from the others, so that a seed of before has the faults of before, and these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from tests.simulation.scene import Fault, Scene
from tests.simulation.servers import COMMITS, MEMBERS, SETTINGS, Answering, Mischief, State

from pyspark_rocketmq.inventory import TopicConfig
from pyspark_rocketmq.model import MASTER_ID, MessageQueue, Permission
from pyspark_rocketmq.remoting.codes import ResponseCode

__all__ = ["KINDS_TOO", "RESHAPING_TOO", "draw_more_faults"]

_LONGEST_INDEX_LAG_S: Final = 2.0
_OF_OTHERS: Final = (Answering.SHORT, Answering.OTHERWISE)
_LOOKS_S: Final = 0.5
_ROUTES_S: Final = 31.0
"""No client uses a route for longer."""


def _close_queue(scene: Scene) -> None:
    """Have a queue read to its end, and written no more."""
    broker = scene.broker()
    config = scene.cluster.stores[broker].topics.get(scene.topic)
    if config is not None and config.write_queues > 1 and not scene.cluster.is_static(scene.topic):
        scene.cluster.change_topic(scene.topic, broker, write_queues=config.write_queues - 1)


def _remove_queue(scene: Scene, broker: str | None = None) -> None:
    """Have an operator take a queue away for good: writers know that it is closed, and it is read."""
    broker, history = broker or scene.broker(), scene.history
    config = scene.cluster.stores[broker].topics.get(scene.topic)
    if config is None or config.write_queues >= config.read_queues:
        return
    queue = MessageQueue(scene.topic, broker, config.read_queues - 1)
    end = scene.cluster.max_offset(queue)
    read = scene.finished().get(queue, 0) >= end
    if not read or not scene.cluster.has_heard(scene.topic, broker, _ROUTES_S):
        if scene.network.scheduler.now < scene.fault.at_s + scene.fault.lasts_s:
            scene.network.scheduler.after(_LOOKS_S, _remove_queue, scene, broker)
        return
    history.expired |= {
        place for place in history.stored if place[:3] == (scene.topic, broker, queue.queue_id)
    }
    history.did["a queue that was read is removed" if end else "an empty queue is removed"] += 1
    scene.cluster.change_topic(scene.topic, broker, read_queues=config.read_queues - 1)


def _hide_queue(scene: Scene) -> None:
    """Lower a topic's number of read queues at a broker for a time: brokers keep what is in its last one."""
    broker = scene.broker()
    config = scene.cluster.stores[broker].topics.get(scene.topic)
    if config is None or config.read_queues < 2:
        return
    scene.cluster.change_topic(scene.topic, broker, read_queues=config.read_queues - 1)
    scene.network.scheduler.after(scene.fault.lasts_s, _show_queues, scene, broker, config.read_queues)


def _show_queues(scene: Scene, broker: str, queues: int) -> None:
    """Raise the number again, unless it is higher by now."""
    config = scene.cluster.stores[broker].topics[scene.topic]
    if config.read_queues < queues:
        scene.cluster.change_topic(scene.topic, broker, read_queues=queues)


def _read_only(scene: Scene) -> None:
    """Have a topic written elsewhere for a time: a topic that nobody may write is an error of its user."""
    broker, stores = scene.broker(), scene.cluster.stores
    writable = [name for name, store in stores.items() if _is_writable(store.topics.get(scene.topic))]
    if scene.cluster.is_static(scene.topic) or broker not in writable or len(writable) < 2:
        return
    scene.cluster.change_topic(scene.topic, broker, perm=Permission.READ)
    again = partial(scene.cluster.change_topic, scene.topic, broker, perm=Permission.READ | Permission.WRITE)
    scene.network.scheduler.after(scene.fault.lasts_s, again)


def _is_writable(config: TopicConfig | None) -> bool:
    return config is not None and Permission.WRITE in config.perm


def _index_lags(scene: Scene) -> None:
    """Have a master show messages later than it acknowledges them."""
    messages = scene.chance.choice((1, 5, 100))
    scene.cluster.delay_index(scene.broker(), messages, min(scene.fault.lasts_s, _LONGEST_INDEX_LAG_S))


def _switch(scene: Scene) -> None:
    """Have the controller make a slave the master: the master died, or was told to step down."""
    broker = scene.broker()
    if (broker, 1) not in scene.cluster.servers or broker in scene.cluster.retired:
        return
    if scene.chance.random() < 0.6:
        scene.cluster.stop_broker(broker, MASTER_ID, scene.fault.lasts_s, State.KILLED)
    elected_s = scene.chance.uniform(0.0, 3.0)
    scene.network.scheduler.after(elected_s, partial(scene.cluster.switch_master, broker))


def _create_again(scene: Scene) -> None:
    """Delete the topic with its messages and create it, broker by broker."""
    for broker, store in scene.cluster.stores.items():
        if scene.topic in store.topics and not scene.cluster.is_static(scene.topic):
            again = partial(_create_again_at, scene, broker)
            scene.network.scheduler.after(scene.chance.uniform(0.0, 2.0), again)


def _create_again_at(scene: Scene, broker: str) -> None:
    for queue in scene.cluster.queues(scene.topic):
        if queue.broker_name == broker:
            scene.history.begin_again(queue)
    store = scene.cluster.stores[broker]
    config = store.topics[scene.topic]
    store.delete_topic(scene.topic)
    store.create_topic(config)
    scene.cluster.announce()


def _move_clock(scene: Scene, ahead_ms: tuple[int, ...]) -> None:
    """Set a broker's clock."""
    scene.cluster.ahead_ms[scene.broker()] += scene.chance.choice(ahead_ms)


def _proxy(scene: Scene) -> None:
    """Have a proxy go away for a time, or its machine."""
    if scene.cluster.proxies:
        proxy = scene.chance.choice(scene.cluster.proxies)
        proxy.stop(scene.chance.choice((State.KILLED, State.VANISHED, State.PAUSED)))
        scene.network.scheduler.after(scene.fault.lasts_s, proxy.start)


def _answers(scene: Scene, codes: frozenset[int]) -> None:
    """Have some of a broker's next answers go wrong."""
    how = scene.chance.choice([how for how in Answering if how not in _OF_OTHERS])
    server = scene.cluster.servers[scene.broker(), MASTER_ID]
    late_s = scene.chance.choice((0.05, 0.5, 2.5, 6.0))
    mischief = Mischief(how, codes, scene.chance.randint(1, 6), ResponseCode.SYSTEM_BUSY, late_s)
    server.mischief.append(mischief)
    scene.history.did[f"{scene.fault.kind}: {how.value}"] += 1


KINDS_TOO: Final[dict[str, Callable[[Scene], None]]] = {
    "a queue is written no more": _close_queue,
    "a queue is hidden": _hide_queue,
    "a closed queue is removed": _remove_queue,
    "a topic is read-only at a broker": _read_only,
    "a master's index lags": _index_lags,
    "a slave becomes the master": _switch,
    "a topic is created again": _create_again,
    "a broker's clock jumps ahead": partial(_move_clock, ahead_ms=(500, 5_000, 3_600_000)),
    "a broker's clock is set back": partial(_move_clock, ahead_ms=(-500, -5_000, -3_600_000)),
    "a proxy is away": _proxy,
    "answers to commits of a transaction": partial(_answers, codes=COMMITS),
    "answers to members of a group": partial(_answers, codes=MEMBERS),
    "answers about a topic's settings": partial(_answers, codes=SETTINGS),
}

RESHAPING_TOO: Final = frozenset(
    {"a queue is written no more", "a closed queue is removed", "a topic is created again"}
)
"""Faults that change the number of queues."""


def draw_more_faults(
    chance: random.Random,
    within_s: float,
    kinds: Collection[str],
    counts: tuple[int, ...] = (0, 1, 1, 2),
) -> list[Fault]:
    """Draw some faults of these kinds; ``counts``: of how many of each."""
    return [
        Fault(
            chance.uniform(0.0, within_s), kind, chance.choice((0.5, 1.0, 3.0, 10.0)), chance.getrandbits(32)
        )
        for kind in sorted(kinds)
        for _ in range(chance.choice(counts))
    ]
