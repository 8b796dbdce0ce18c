"""What goes wrong in a life: faults drawn from its seed, each a value with a moment and a duration."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from tests.simulation.cluster import Cluster
from tests.simulation.dead_letters import DEAD_LETTERS
from tests.simulation.edge_answers import EDGE_KINDS
from tests.simulation.history import History, Place
from tests.simulation.network import Network
from tests.simulation.reshaping import KINDS_TOO, RESHAPING_TOO
from tests.simulation.scene import Fault, Scene
from tests.simulation.servers import OFFSETS, PULLS, ROUTES, SENDS, Answering, Mischief, State

from pyspark_rocketmq.model import MASTER_ID, MessageQueue
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.testing.log import PullLimits

__all__ = ["KINDS", "RESHAPING", "Fault", "draw_faults", "happen"]

_REFUSALS: Final = (
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.FLOW_CONTROL,
    ResponseCode.SERVICE_NOT_AVAILABLE,
)
_LONGEST_FILE: Final = 30
"""So many messages are removed at most."""
_BEFORE_DAMAGE: Final = 0.5
"""How often what is removed ends before a damaged message, if there is one."""
_CODES: Final = {"pull": PULLS, "send": SENDS, "offsets": OFFSETS, "route": ROUTES, "any": frozenset[int]()}


def _master(scene: Scene, state: State) -> None:
    scene.cluster.stop_broker(scene.broker(), MASTER_ID, scene.fault.lasts_s, state)


def _all_brokers(scene: Scene, state: State) -> None:
    for name, broker_id in scene.cluster.servers:
        scene.cluster.stop_broker(name, broker_id, scene.fault.lasts_s, state)


def _slave(scene: Scene) -> None:
    slaves = [key for key in scene.cluster.servers if key[1] != MASTER_ID]
    if slaves:
        name, broker_id = scene.chance.choice(slaves)
        scene.cluster.stop_broker(name, broker_id, scene.fault.lasts_s, State.KILLED)


def _lagging_master(scene: Scene) -> None:
    """Let a master vanish whose slaves lack messages."""
    broker = scene.broker()
    lag = scene.chance.choice((1, 5, 100))
    for (name, broker_id), replica in scene.cluster.replicas.items():
        if name == broker and broker_id != MASTER_ID:
            replica.lag = lag
    state = scene.chance.choice((State.KILLED, State.VANISHED))
    scene.cluster.stop_broker(broker, MASTER_ID, scene.fault.lasts_s, state)


def _for_good(scene: Scene) -> None:
    """Let a master vanish or hang that nobody brings back; its slaves have all of its messages."""
    state = scene.chance.choice((State.VANISHED, State.PAUSED))
    scene.cluster.retire(scene.cluster.brokers[0], state)
    scene.history.did[f"a master is gone for good: {state.value}"] += 1


def _clock(scene: Scene) -> None:
    scene.jump(scene.chance.choice((-3_600_000, -30_000, 30_000, 86_400_000)))


def _forgetful_name_servers(scene: Scene) -> None:
    """Restart all name servers: their links are slow while brokers register one after the other."""
    slowness = scene.chance.choice((0.05, 0.2, 0.5))
    for number, one in enumerate(scene.cluster.name_servers):
        scene.cluster.restart_name_server(number, 0.1, State.KILLED)
        scene.network.slowness[one.server.name] = slowness


def _name_server(scene: Scene, state: State) -> None:
    number = scene.chance.randrange(len(scene.cluster.name_servers))
    scene.cluster.restart_name_server(number, scene.fault.lasts_s, state)


def _every_name_server(scene: Scene) -> None:
    for number in range(len(scene.cluster.name_servers)):
        scene.cluster.restart_name_server(number, scene.fault.lasts_s, State.KILLED)


def _everything(scene: Scene) -> None:
    _every_name_server(scene)
    _all_brokers(scene, State.KILLED)


def _hang_up(scene: Scene) -> None:
    for session in scene.server().sessions():
        session.break_off()


def _half_open(scene: Scene) -> None:
    for session in scene.server().sessions():
        session.half_open = True


def _partition(scene: Scene) -> None:
    server = scene.server()
    some = scene.chance.sample(scene.processes, scene.chance.randint(1, len(scene.processes)))
    for process in some:
        scene.network.block(process, server.name, scene.fault.lasts_s)


def _slow(scene: Scene) -> None:
    name = scene.server().name
    scene.network.slowness[name] = scene.chance.choice((0.02, 0.1, 0.5, 1.5))
    scene.network.scheduler.after(
        scene.fault.lasts_s, lambda: scene.network.slowness.pop(name, None) and None
    )


def _answers(scene: Scene, how: Answering, what: str) -> None:
    mischief = Mischief(
        how,
        _CODES[what],
        scene.chance.randint(1, 6),
        scene.chance.choice(_REFUSALS),
        scene.chance.choice((0.05, 0.5, 2.5, 6.0)),
    )
    name_servers = [one.server for one in scene.cluster.name_servers]
    servers = name_servers if what == "route" else list(scene.cluster.servers.values())
    scene.chance.choice(servers).mischief.append(mischief)


def _limits(scene: Scene) -> None:
    scene.cluster.set_limits(
        PullLimits(scene.chance.randint(1, 40), scene.chance.choice((200, 5_000, 1 << 18)))
    )


def _more_queues(scene: Scene) -> None:
    store = scene.cluster.stores[scene.broker()]
    config = store.topics.get(scene.topic)
    if config is not None and not scene.cluster.is_static(scene.topic):
        more = config.write_queues + 1
        scene.cluster.change_topic(
            scene.topic, store.name, write_queues=more, read_queues=max(more, config.read_queues)
        )


def _lag(scene: Scene) -> None:
    slaves = [key for key in scene.cluster.replicas if key[1] != MASTER_ID]
    if slaves:
        replica = scene.cluster.replicas[scene.chance.choice(slaves)]
        replica.lag = scene.chance.choice((1, 5, 100))
        scene.network.scheduler.after(scene.fault.lasts_s, lambda: setattr(replica, "lag", 0))


def _retention(scene: Scene) -> None:
    """Delete a queue's oldest messages: those that were read or, in a lossy life, any."""
    if scene.cluster.is_static(scene.topic):
        return
    queue = scene.queue()
    end = scene.cluster.max_offset(queue) if scene.deletes else scene.finished().get(queue, 0)
    begin = scene.cluster.min_offset(queue)
    if end > begin:
        until = scene.chance.randint(begin + 1, end)
        _delete(scene, queue, begin, until)
        scene.cluster.expire(queue, until)


def _file_deleted(scene: Scene, *, index: bool = False) -> None:
    """Delete messages in the middle: their log file is gone and not their index, or the other way around."""
    if scene.cluster.is_static(scene.topic) or not scene.deletes:
        return
    queue = scene.queue()
    begin, end = scene.cluster.min_offset(queue), scene.cluster.max_offset(queue)
    if end > begin:
        first = scene.chance.randrange(begin, end)
        until = min(end, first + scene.chance.randint(1, _LONGEST_FILE))
        after = range(first + 1, min(end, first + _LONGEST_FILE + 1))
        damaged = [offset for offset in after if _place(scene, queue, offset) in scene.history.unwanted]
        if damaged and scene.chance.random() < _BEFORE_DAMAGE:
            until = scene.chance.choice(damaged)
        _delete(scene, queue, first, until)
        remove = scene.cluster.remove_index if index else scene.cluster.remove
        remove(queue, first, until)


def _delete(scene: Scene, queue: MessageQueue, first: int, until: int) -> None:
    places = {_place(scene, queue, offset) for offset in range(first, until)}
    scene.history.expired |= places & scene.history.stored.keys()
    scene.history.unseen += len(places & scene.history.unwanted.keys())


def _place(scene: Scene, queue: MessageQueue, offset: int) -> Place:
    return scene.history.place(queue.topic, queue.broker_name, queue.queue_id, offset)


def _compaction(scene: Scene) -> None:
    if scene.cluster.is_compacted(scene.topic):
        scene.cluster.gap(scene.queue(), scene.chance.randint(1, 2_000))


def _new_broker(scene: Scene) -> None:
    if scene.cluster.is_static(scene.topic):
        return
    name = f"broker-{len(scene.cluster.stores)}-new"
    scene.cluster.add_broker(name, 0)
    queues = scene.chance.randint(1, 3)
    attributes = {"cleanup.policy": "COMPACTION"} if scene.cluster.is_compacted(scene.topic) else None
    scene.cluster.create_topic(scene.topic, queues, brokers=(name,), attributes=attributes)
    if scene.cluster.homes(DEAD_LETTERS):  # else it seems missing while name servers know this broker alone
        scene.cluster.create_topic(DEAD_LETTERS, 1, brokers=(name,))
    scene.cluster.start_broker(name)


def _remap(scene: Scene) -> None:
    if scene.cluster.is_static(scene.topic):
        scene.cluster.remap(scene.topic, scene.broker())
        scene.cluster.announce()


_DRAWN: Final[dict[str, Callable[[Scene], None]]] = {
    "a master is killed": partial(_master, state=State.KILLED),
    "a master vanishes": partial(_master, state=State.VANISHED),
    "a master pauses": partial(_master, state=State.PAUSED),
    "all brokers are killed": partial(_all_brokers, state=State.KILLED),
    "a master is gone, and its slaves lag": _lagging_master,
    "a slave is killed": _slave,
    "a slave lags": _lag,
    "a name server is killed": partial(_name_server, state=State.KILLED),
    "a name server vanishes": partial(_name_server, state=State.VANISHED),
    "a name server pauses": partial(_name_server, state=State.PAUSED),
    "all name servers are killed": _every_name_server,
    "name servers forget": _forgetful_name_servers,
    "the whole cluster is killed": _everything,
    "the driver's clock jumps": _clock,
    "connections are closed": _hang_up,
    "connections become half-open": _half_open,
    "a partition": _partition,
    "a slow link": _slow,
    "limits of an answer change": _limits,
    "a queue is added": _more_queues,
    "a static topic moves": _remap,
    "retention deletes messages": _retention,
    "a log file is deleted": _file_deleted,
    "compaction": _compaction,
    "a broker is added": _new_broker,
} | {
    f"{what}: {how.value}": partial(_answers, how=how, what=what)
    for what in _CODES
    for how in Answering
    if how is not Answering.OTHERWISE and (how is not Answering.SHORT or what == "pull")
}


RESHAPING: Final = frozenset({"a queue is added", "a broker is added"}) | RESHAPING_TOO
"""Faults that change the number of queues."""

_LIKELY_ONLY: Final[dict[str, Callable[[Scene], None]]] = {
    "a master is gone for good": _for_good,
    "an index file is deleted": partial(_file_deleted, index=True),
}
"""Faults of lives that are made for them."""

_ACTIONS: Final = _DRAWN | _LIKELY_ONLY | KINDS_TOO | EDGE_KINDS

KINDS: Final = tuple(sorted(_ACTIONS))
"""All kinds of faults."""


def draw_faults(
    chance: random.Random, within_s: float, likely: Sequence[str], never: Collection[str] = ()
) -> list[Fault]:
    """Draw the faults of a life, in the order of their moments.

    Parameters
    ----------
    within_s : float
        The last one begins by then.
    likely : sequence of str
        Kinds for which this life is made, such as moves of its static topic.
    never : collection of str
        Kinds that would undo what this life is made for.
    """
    count = chance.choice((0, 1, 1, 2, 3, 4, 6, 10))
    answers = [kind for kind in sorted(_DRAWN) if ": " in kind]
    others = sorted(_DRAWN.keys() - {*answers, *never})
    some = [*chance.sample(answers, chance.randint(0, 6)), *chance.sample(others, chance.randint(1, 6))]
    kinds = [*some, *likely, *likely]
    drawn = [chance.choice(kinds) for _ in range(count)] + list(likely)
    return sorted(
        (
            Fault(
                chance.uniform(0.0, within_s),
                kind,
                chance.choice((0.1, 0.5, 1.0, 3.0, 10.0, 45.0)),
                chance.getrandbits(32),
            )
            for kind in drawn
        ),
        key=lambda fault: fault.at_s,
    )


def happen(
    fault: Fault,
    cluster: Cluster,
    network: Network,
    history: History,
    *,
    topic: str,
    processes: tuple[str, ...],
    finished: Callable[[], Mapping[MessageQueue, int]],
    deletes: bool,
    jump: Callable[[int], None],
) -> None:
    """Let a fault happen now."""
    history.did[fault.kind] += 1
    chance = random.Random(fault.dice)
    scene = Scene(cluster, network, history, topic, processes, finished, deletes, jump, fault, chance)
    _ACTIONS[fault.kind](scene)
