"""Answers at the edge of the protocol, with the codes and the remarks of real servers."""

# Facts (RocketMQ 5.4)
# - NettyRemotingAbstract.processRequestCommand: [REJECTREQUEST] where a processor rejects all requests (of
#   sends, while the page cache is busy), [OVERLOAD] where its queue is full, GO_AWAY when the server was told
#   to shut down and before it closes its connections (enableShutdownGracefully).
# - BrokerFastFailure: requests that waited too long in a queue, and sends that wait while the page cache is
#   busy, are not executed.
# - SendMessageProcessor.handlePutMessageResult: FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT and
#   SLAVE_NOT_AVAILABLE are the codes of messages that are stored; the others of messages that are not.
#   CommitLog.asyncPutMessage: too few replicas in sync is an answer under controllers and acting masters.
# - PullMessageProcessor: cold data (5.5). EndTransactionProcessor: a busy page cache is SYSTEM_ERROR.
# - ClientRequestProcessor: a name server that waits for its brokers has no route for anyone.
# - A broker that may not be written registers its topics so: see "a topic is read-only at a broker".

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.simulation.scene import Scene
from tests.simulation.servers import COMMITS, PULLS, ROUTES, SENDS, Answering, Mischief, Server, State

from pyspark_rocketmq.model import MASTER_ID
from pyspark_rocketmq.remoting.codes import ResponseCode

__all__ = ["EDGE_KINDS", "GOES_AWAY", "REFUSED_FOR_GOOD", "WEAK", "answer"]

_FLOW_CONTROL: Final = "broker busy, start flow control for a while"
_REJECTED: Final = "system busy, start flow control for a while"
_WAITED: Final = "period in queue: 5003ms, size of queue: 12"


@dataclass(frozen=True, slots=True)
class _Edge:
    """What a server answers to some of its next requests."""

    codes: frozenset[int]
    code: ResponseCode
    remark: str = ""
    how: Answering = Answering.REFUSED
    times: tuple[int, ...] = (1, 1, 2, 4, 12)

    def mischief(self, times: int, what: str) -> Mischief:
        """Return what makes a server answer so to a number of requests."""
        return Mischief(self.how, self.codes, times, self.code, remark=self.remark, what=what)


_BUSY: Final = {
    "pulls wait too long at a broker": _Edge(
        PULLS, ResponseCode.SYSTEM_BUSY, f"[TIMEOUT_CLEAN_QUEUE]{_FLOW_CONTROL}, {_WAITED}"
    ),
    "a broker has no room for pulls": _Edge(PULLS, ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{_REJECTED}"),
    "a group without members reads cold data": _Edge(
        PULLS,
        ResponseCode.SYSTEM_ERROR,
        'java.lang.NullPointerException: Cannot invoke "org.apache.rocketmq.broker.client.ConsumerGroupInfo'
        '.getConsumeType()" because the return value of "org.apache.rocketmq.broker.client.ConsumerManager'
        '.getConsumerGroupInfo(String)" is null, '
        "org.apache.rocketmq.broker.processor.PullMessageProcessor.processRequest(PullMessageProcessor.java:516)",
    ),
    "sends wait too long at a broker": _Edge(
        SENDS, ResponseCode.SYSTEM_BUSY, f"[TIMEOUT_CLEAN_QUEUE]{_FLOW_CONTROL}, {_WAITED}"
    ),
    "the page cache is busy: sends are rejected": _Edge(
        SENDS, ResponseCode.SYSTEM_BUSY, f"[REJECTREQUEST]{_REJECTED}"
    ),
    "the page cache is busy: waiting sends are refused": _Edge(
        SENDS, ResponseCode.SYSTEM_BUSY, f"[PCBUSY_CLEAN_QUEUE]{_FLOW_CONTROL}, {_WAITED}"
    ),
    "the page cache is busy: a message is not stored": _Edge(
        SENDS, ResponseCode.SYSTEM_BUSY, f"[PC_SYNCHRONIZED]{_FLOW_CONTROL}"
    ),
    "a disk is full": _Edge(
        SENDS,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now. It may be caused by one of the following reasons: "
        "the broker's disk is full [CL:  0.91 CQ:  0.91 INDEX:  0.91], messages are put to the slave, "
        "message store has been shut down, etc.",
    ),
    "a name server waits for its brokers": _Edge(ROUTES, ResponseCode.SYSTEM_ERROR, "name server not ready"),
    "the page cache is busy: a transaction is not ended": _Edge(
        COMMITS, ResponseCode.SYSTEM_ERROR, "OS page cache busy, please try another machine"
    ),
}

WEAK: Final = {
    "stored, and not flushed to the disk in time": _Edge(
        SENDS, ResponseCode.FLUSH_DISK_TIMEOUT, how=Answering.OTHERWISE
    ),
    "stored, and not at a slave in time": _Edge(
        SENDS, ResponseCode.FLUSH_SLAVE_TIMEOUT, how=Answering.OTHERWISE
    ),
    "stored, and no slave is there": _Edge(SENDS, ResponseCode.SLAVE_NOT_AVAILABLE, how=Answering.OTHERWISE),
}
"""Answers to messages that are stored, and may be lost in a crash: a send fails unless they are accepted."""

REFUSED_FOR_GOOD: Final = {
    "too few replicas are in sync": _Edge(
        SENDS, ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough", times=(1, 2)
    ),
}
"""Answers after which a send is tried elsewhere, a limited number of times."""

GOES_AWAY: Final = "a server shuts down"
_GOES_AWAY: Final = _Edge(frozenset(), ResponseCode.GO_AWAY, "please go away")


def answer(kind: str) -> tuple[ResponseCode, str]:
    """Return the code and the remark of a kind of answers."""
    edge = (_BUSY | WEAK | REFUSED_FOR_GOOD | {GOES_AWAY: _GOES_AWAY})[kind]
    return edge.code, edge.remark


def _answer(scene: Scene, edge: _Edge) -> None:
    """Have a server answer so to some of its next requests."""
    mischief = scene.chance.choice(_servers(scene, edge.codes)).mischief
    mischief.append(edge.mischief(scene.chance.choice(edge.times), scene.fault.kind))


def _servers(scene: Scene, codes: frozenset[int]) -> list[Server]:
    """Return the servers that clients ask such things."""
    cluster = scene.cluster
    if cluster.proxies:
        return cluster.proxies
    if codes == ROUTES:
        return [one.server for one in cluster.name_servers]
    return [server for key, server in cluster.servers.items() if codes == PULLS or key[1] == MASTER_ID]


def _shut_down(scene: Scene) -> None:
    """Have a broker or a proxy answer GO_AWAY until it is gone; it comes back."""
    cluster, lasts_s = scene.cluster, scene.fault.lasts_s
    key = scene.chance.choice(sorted(cluster.servers))
    server = scene.chance.choice(cluster.proxies) if cluster.proxies else cluster.servers[key]
    if not server.running:
        return
    going = _GOES_AWAY.mischief(1_000_000, GOES_AWAY)
    server.mischief.insert(0, going)

    def stop() -> None:
        if going in server.mischief:
            server.mischief.remove(going)
            if server in cluster.proxies:
                server.stop(State.KILLED)
                scene.network.scheduler.after(lasts_s, server.start)
            for name, broker_id in [key for key, each in cluster.servers.items() if each is server]:
                cluster.stop_broker(name, broker_id, lasts_s, State.KILLED)

    scene.network.scheduler.after(scene.chance.choice((0.05, 0.5, 2.0)), stop)


EDGE_KINDS: Final[dict[str, Callable[[Scene], None]]] = {
    kind: partial(_answer, edge=edge) for kind, edge in (_BUSY | WEAK | REFUSED_FOR_GOOD).items()
} | {GOES_AWAY: _shut_down}
