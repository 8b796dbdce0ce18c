"""A name server and brokers on loopback that answer as a test scripts it."""

from __future__ import annotations

import json
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tests.support.scripted_peer import Peer, ScriptedPeer, answer

from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame

BrokerScript = Callable[[Peer, Frame, str], None]


class ScriptedCluster:
    """One name server and brokers of the given names; ``script`` answers what the brokers are asked.

    What the route says may be changed while it runs: ``routes`` (topic to broker names), ``queues``,
    ``addresses``, and ``broker_ids`` (0, the master's, where nothing is set).
    """

    def __init__(
        self,
        script: BrokerScript,
        *,
        brokers: tuple[str, ...] = ("broker-a",),
        queues: int = 2,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.routes: dict[str, tuple[str, ...]] = {"orders": brokers}
        self.queues = queues
        self.asked: Counter[int] = Counter()
        self._script = script
        self._name_server = ScriptedPeer(self._serve_name_server, tls)
        self._brokers = {name: ScriptedPeer(self._serve_broker(name), tls) for name in brokers}
        self.broker_ids: dict[str, int] = {}
        self.addresses = {name: peer.addr for name, peer in self._brokers.items()}
        self._resources = ExitStack()

    @property
    def name_server(self) -> str:
        return self._name_server.addr

    def _serve_name_server(self, peer: Peer, frame: Frame) -> None:
        self.asked[frame.command.code] += 1
        topic = frame.command.fields.get("topic", "")
        if frame.command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            peer.send(answer(frame, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
            return
        if frame.command.code != RequestCode.GET_ROUTEINFO_BY_TOPIC or topic not in self.routes:
            peer.send(answer(frame, code=ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info"))
            return
        names = self.routes[topic]
        route = {
            "brokerDatas": [
                {
                    "brokerName": name,
                    "cluster": "c",
                    "brokerAddrs": {str(self.broker_ids.get(name, 0)): self.addresses[name]},
                }
                for name in names
            ],
            "queueDatas": [
                {
                    "brokerName": name,
                    "readQueueNums": self.queues,
                    "writeQueueNums": self.queues,
                    "perm": 6,
                    "topicSysFlag": 0,
                }
                for name in names
            ],
        }
        peer.send(answer(frame, json.dumps(route).encode()))

    def _serve_broker(self, name: str) -> Callable[[Peer, Frame], None]:
        def serve(peer: Peer, frame: Frame) -> None:
            self.asked[frame.command.code] += 1
            self._script(peer, frame, name)

        return serve

    def __enter__(self) -> Self:
        self._resources.enter_context(self._name_server)
        for peer in self._brokers.values():
            self._resources.enter_context(peer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()


def stored(frame: Frame, offset: int = 0) -> bytes:
    """Answer a send: it is stored."""
    queue_id = frame.command.fields["e"]
    return answer(frame, msgId="00", queueId=queue_id, queueOffset=str(offset))
