"""Faults of every kind that the mock cluster knows, one after the other at random, while a workload runs."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial

from tests.support.clocks import WrongClock
from tests.support.workload import Figures, Workload

from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import (
    Cut,
    Delay,
    Drip,
    Fault,
    HangUp,
    Injection,
    MockCluster,
    PullLimits,
    Refuse,
    Reorder,
    Repeat,
    Short,
    Silence,
    Stranger,
)

PULL = RequestCode.PULL_MESSAGE
SENDS = (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2)
OFFSETS = RequestCode.GET_MAX_OFFSET
ROUTES = RequestCode.GET_ROUTEINFO_BY_TOPIC

ANSWERS: dict[str, tuple[Fault, object, int]] = {
    "pull: busy": (Refuse(ResponseCode.SYSTEM_BUSY), PULL, 4),
    "pull: flow control": (Refuse(ResponseCode.FLOW_CONTROL), PULL, 4),
    "pull: not available": (Refuse(ResponseCode.SERVICE_NOT_AVAILABLE), PULL, 2),
    "pull: late": (Delay(0.05), PULL, 10),
    "pull: no answer": (Silence(), PULL, 1),
    "pull: connection closed": (HangUp(), PULL, 2),
    "pull: answer cut off": (Cut(after_bytes=1_000), PULL, 2),
    "pull: answer drips": (Drip(step_bytes=4_000), PULL, 2),
    "pull: answers out of order": (Reorder(hold=5), PULL, 10),
    "pull: short answers": (Short(messages=2), PULL, 10),
    "pull: answers to nobody": (Stranger(), PULL, 5),
    "pull: answers repeated": (Repeat(), PULL, 5),
    "send: busy": (Refuse(ResponseCode.SYSTEM_BUSY), SENDS, 4),
    "send: refused": (Refuse(ResponseCode.SYSTEM_ERROR), SENDS, 2),
    "send: broker goes away": (Refuse(ResponseCode.GO_AWAY), SENDS, 2),
    "send: stored, answer late": (Delay(0.1), SENDS, 3),
    "send: stored, no answer": (Silence(executed=True), SENDS, 1),
    "send: stored, connection closed": (HangUp(executed=True), SENDS, 1),
    "send: connection closed": (HangUp(), SENDS, 2),
    "offsets: busy": (Refuse(ResponseCode.SYSTEM_BUSY), OFFSETS, 2),
    "offsets: connection closed": (HangUp(), OFFSETS, 1),
    "route: no answer": (Silence(), ROUTES, 1),
    "route: connection closed": (HangUp(), ROUTES, 1),
}


_FAULT_S = 2.0
"""How long a fault is waited for."""


class _Disturber:
    """Applies one fault after the other; each ends before the next begins."""

    def __init__(self, mq: MockCluster, seed: int) -> None:
        self._mq = mq
        self._random = random.Random(seed)
        self.done = threading.Event()
        self.clock = WrongClock()
        self._injections: dict[str, list[Injection]] = {kind: [] for kind in ANSWERS}

    def _shift_clock(self, by_s: float) -> None:
        self.clock.ahead_s += by_s

    def kinds(self) -> dict[str, Callable[[], None]]:
        answers: dict[str, Callable[[], None]] = {
            kind: partial(self._inject, kind, fault, on, times)
            for kind, (fault, on, times) in ANSWERS.items()
        }
        return answers | {
            "server: connections closed": self._mq.disconnect,
            "server: broker killed, back soon": self._kill,
            "server: broker silent in the route, back soon": partial(self._kill, unregister=False),
            "server: name server down": self._name_server_down,
            "server: cluster restarted, name server first": self._restart_cluster,
            "server: broker leaves the route": self._flap,
            "server: limits of an answer change": self._limits,
            "server: group reset by an operator": self._reset,
            "clock: an hour forward": partial(self._shift_clock, 3_600),
            "clock: an hour back": partial(self._shift_clock, -3_600),
        }

    def happened(self, kind: str) -> int:
        """Return how many answers of a kind went wrong; an injected fault that nobody met is none."""
        return sum(injection.hits for injection in self._injections[kind])

    def _inject(self, kind: str, fault: Fault, on: object, times: int) -> None:
        """Have something go wrong so many times, and wait for that: else faults outrun who backs off.

        Some requests are rare, routes above all: theirs go wrong while other things do.
        """
        injection = self._mq.inject(fault, on=on, times=times)
        self._injections[kind].append(injection)
        end = self.clock.monotonic() + _FAULT_S
        while injection.hits < times and self.clock.monotonic() < end:
            self._pause(0.01)

    def _broker(self) -> str:
        return self._random.choice(self._mq.brokers)

    def _pause(self, seconds: float) -> None:
        self.done.wait(seconds)

    def _kill(self, *, unregister: bool = True) -> None:
        broker = self._broker()
        self._mq.stop_broker(broker, unregister=unregister)
        self._pause(0.3)
        self._mq.start_broker(broker)

    def _name_server_down(self) -> None:
        self._mq.stop_name_server()
        self._pause(0.2)
        self._mq.start_name_server()

    def _restart_cluster(self) -> None:
        self._mq.stop_name_server()
        for broker in self._mq.brokers:
            self._mq.stop_broker(broker)
        self._pause(0.2)
        self._mq.start_name_server()
        self._pause(0.3)  # it knows no broker yet
        for broker in self._mq.brokers:
            self._mq.start_broker(broker)

    def _flap(self) -> None:
        broker = self._broker()
        self._mq.unregister(broker)
        self._pause(0.2)
        self._mq.register(broker)

    def _limits(self) -> None:
        self._mq.set_limits(PullLimits(self._random.choice([1, 8, 32, 500]), 256 << 10))
        self._pause(0.2)
        self._mq.set_limits(PullLimits())

    def _reset(self) -> None:
        self._mq.reset_offset("chaos", self._random.choice(self._mq.queues("orders")), 0)


def disturb(messages: int, *, seed: int = 1, pause_s: float = 0.05, static: bool = False) -> Figures:
    """Run a workload of at least so many messages on a mock cluster, until every kind of fault happened.

    With ``static`` the topic is a static one whose queues move between the brokers, while servers fail.
    """
    with MockCluster(brokers=("broker-a", "broker-b")) as mq:
        if static:
            mq.create_static_topic("orders", 4)
        else:
            mq.create_topic("orders", 2)
        disturber = _Disturber(mq, seed)
        work = Workload(
            mq.name_server,
            "orders",
            request_timeout_ms=500,
            read_stall_ms=20_000,
            clock=disturber.clock,
        )
        kinds = disturber.kinds()
        if static:
            kinds = {kind: fault for kind, fault in kinds.items() if kind.startswith("server:")} | {
                f"static topic: its queues move to {broker}": partial(mq.remap, "orders", broker)
                for broker in mq.brokers
            }
        order, faults = random.Random(seed), work.figures.faults
        with work.running():
            while work.sent < messages or not all(faults[kind] for kind in kinds):
                for kind in order.sample(sorted(kinds), len(kinds)):
                    kinds[kind]()
                    faults[kind] += kind not in ANSWERS
                    disturber.done.wait(pause_s)
                faults.update(
                    {kind: disturber.happened(kind) - faults[kind] for kind in kinds if kind in ANSWERS}
                )
            mq.heal()
        return work.figures
