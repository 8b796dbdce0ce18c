"""A broker in lockstep with its reader: all pulls in flight are answered together, in one round trip."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tests.support.clocks import FakeClock
from tests.support.fakes import Highest

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.errors import ConnectError
from pyspark_rocketmq.model import BrokerData, MessageQueue, Permission, QueueData, TopicRoute
from pyspark_rocketmq.record.layout import MIN_RECORD_SIZE
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.header import PullMessageRequest

T = TypeVar("T")

MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"


@dataclass(frozen=True)
class Answer:
    """What a pull is answered."""

    next_offset: int
    records: bytes = b""
    code: int = ResponseCode.SUCCESS
    remark: str = "FOUND"
    max_offset: int = 0
    min_offset: int = 0
    offset_delta: int | None = None


Script = Callable[[str, int, int], Answer]
"""From address, offset and number of messages asked for to the answer."""


def found(offset: int, count: int, *, size: int = MIN_RECORD_SIZE) -> Answer:
    """Return that many records of one size: enough for a reader that does not decode them."""
    record = size.to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + bytes(size - 8)
    records = b"".join(
        record[:20] + number.to_bytes(8, "big") + record[28:] for number in range(offset, offset + count)
    )
    return Answer(offset + count, records)


def at_most(limit: int, *, size: int = MIN_RECORD_SIZE) -> Script:
    """Return a broker that gives at most so many messages a pull."""
    return lambda addr, offset, asked: found(offset, min(limit, asked), size=size)


class LockstepClient(Client):
    """Its brokers are scripts, its clock and chance a test's."""

    def __init__(self, script: Script, *, slave: bool = False) -> None:
        self.manual_clock = FakeClock()
        super().__init__("10.0.0.9:9876", clock=self.manual_clock, random=Highest())
        self.script = script
        self.addresses = {0: MASTER, 1: SLAVE} if slave else {0: MASTER}
        self.down: Collection[str] = ()
        self.trips = 0
        self.pulls: list[tuple[str, int]] = []
        self.single: list[tuple[PullMessageRequest, Deadline]] = []
        self.most_bytes = 0
        self._connections: dict[str, LockstepConnection] = {}

    def route(self, topic: str) -> TopicRoute:
        return TopicRoute(
            topic,
            (BrokerData("broker-a", "c", self.addresses),),
            (QueueData("broker-a", 4, 4, Permission.READ | Permission.WRITE),),
        )

    find_route = served_route = route

    def ask(self, calls: Mapping[MessageQueue, Call[T]]) -> dict[MessageQueue, T]:  # type: ignore[override]
        """Have the master answer each call."""
        deadline = self.deadline(self.request_timeout_ms)
        return {queue: call.on(self.connection(MASTER), deadline=deadline) for queue, call in calls.items()}

    def connection(self, addr: str) -> LockstepConnection:  # type: ignore[override]
        if addr in self.down:
            raise ConnectError("cannot connect", addr=addr)
        return self._connections.setdefault(addr, LockstepConnection(self, addr))


@dataclass
class LockstepConnection:
    """Speaks as a `Connection` does."""

    client: LockstepClient
    addr: str
    asked: dict[int, tuple[int, int]] = field(default_factory=dict)
    templates: list[object] = field(default_factory=list)
    _number: int = 0

    def submit_many(self, template: object, values: Sequence[tuple[int, int]]) -> list[int]:
        self.templates.append(template)
        opaques = []
        for offset, most in values:
            self._number += 1
            self.asked[self._number] = (offset, most)
            self.client.pulls.append((self.addr, offset))
            opaques.append(self._number)
        return opaques

    def wait_some(self, opaques: Collection[int], deadline: object) -> list[tuple[int, Response]]:
        del deadline
        self.client.trips += 1
        answers = []
        for opaque in list(opaques):
            offset, most = self.asked.pop(opaque)
            answers.append((opaque, self._answer(opaque, offset, most)))
        size = sum(response.end for _, response in answers)
        self.client.most_bytes = max(self.client.most_bytes, size)
        return answers

    def _answer(self, opaque: int, offset: int, most: int) -> Response:
        answer = self.client.script(self.addr, offset, most)
        fields = {
            "nextBeginOffset": str(answer.next_offset),
            "minOffset": str(answer.min_offset),
            "maxOffset": str(answer.max_offset),
            "suggestWhichBrokerId": "0",
        }
        if answer.offset_delta is not None:
            fields["offsetDelta"] = str(answer.offset_delta)
        command = Command(code=answer.code, opaque=opaque, flag=1, remark=answer.remark, fields=fields)
        buffer = bytearray(answer.records)
        return Response(command, self.addr, buffer, 0, len(buffer))

    def call(self, request: object, body: bytes = b"", *, deadline: Deadline) -> Response:
        """Answer one pull; tell no topic's settings."""
        del body
        if isinstance(request, PullMessageRequest):
            self.client.single.append((request, deadline))
            self.client.pulls.append((self.addr, request.queue_offset))
            return self._answer(0, request.queue_offset, request.max_msg_nums)
        command = Command(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, opaque=0, flag=1)
        return Response(command, self.addr, bytearray(), 0, 0)

    def abandon(self, *opaques: int) -> None:
        for opaque in opaques:
            self.asked.pop(opaque, None)
