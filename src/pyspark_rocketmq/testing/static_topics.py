"""Static topics of a mock cluster: queues that move between brokers and keep their ids and offsets.

``tests/contract/test_static_topics.py`` compares them with a real cluster.
"""

# Facts (TopicQueueMappingUtils, PullMessageProcessor, AdminBrokerProcessor, ConsumerManageProcessor; 5.4.0)
# - A queue is a chain of parts, each a queue of a broker. The last part's broker owns the queue and answers
#   for all parts, by forwarding requests to the other brokers. Every other broker responds 501.
# - A remap starts a part whose offsets start at the next block of 10,000, or the one after that.
# - A pull between two parts responds 20 and the start of the next part. Records keep their part's offsets.
# - A group's commit is stored in the part that has the offset, and read from the last part with a commit:
#   once a group has committed in a part it does not go back to an earlier one.

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark_rocketmq.model import LOGICAL_BROKER_PREFIX, MessageQueue
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.remoting.header import (
    DeleteTopicRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    OffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueryConsumerOffsetRequest,
    RequestHeader,
    SearchOffsetRequest,
    SendBatchMessageRequest,
    SendMessageRequest,
    SendMessageResponse,
    UpdateConsumerOffsetRequest,
)
from pyspark_rocketmq.testing.handlers.execution import Refused
from pyspark_rocketmq.testing.handlers.requests import Operation, Replica, without_commit
from pyspark_rocketmq.testing.log import PullLimits
from pyspark_rocketmq.testing.wire import Reply

__all__ = ["Part", "StaticTopic", "static_requests"]

LOGICAL_BROKER: Final = f"{LOGICAL_BROKER_PREFIX}global__"
_BLOCK: Final = 10_000


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a queue: offsets from ``begin`` on correspond to a broker's queue from 0 on."""

    broker: str
    queue_id: int
    begin: int


@dataclass(slots=True)
class StaticTopic:
    """The current and earlier brokers of a static topic's queues. Guarded by the cluster's lock."""

    topic: str
    brokers: tuple[str, ...]
    parts: dict[int, list[Part]] = field(default_factory=dict)
    epoch: int = 1

    def owner(self, queue_id: int) -> str:
        """Return the queue's current broker."""
        return self.parts[queue_id][-1].broker

    def queues(self) -> tuple[MessageQueue, ...]:
        """Return the queues under their logical names."""
        return tuple(MessageQueue(self.topic, LOGICAL_BROKER, queue_id) for queue_id in sorted(self.parts))

    def move(self, queue_id: int, broker: str, physical_id: int, end: int) -> None:
        """Continue the queue, which ends at ``end``, in a broker's queue."""
        blocks, rest = divmod(end, _BLOCK)
        begin = (blocks + (1 if rest < _BLOCK // 2 else 2)) * _BLOCK
        self.parts[queue_id].append(Part(broker, physical_id, begin))
        self.epoch += 1

    def part_of(self, queue_id: int, offset: int) -> int:
        """Return the number of an offset's part."""
        begins = [part.begin for part in self.parts[queue_id]]
        return max(0, sum(begin <= offset for begin in begins) - 1)

    def mappings(self, registered: Sequence[str]) -> dict[str, Any]:
        """Return the route data of the registered brokers."""
        return {
            name: {
                "bname": name,
                "currIdMap": {
                    str(queue_id): parts[-1].queue_id
                    for queue_id, parts in self.parts.items()
                    if parts[-1].broker == name
                },
                "dirty": False,
                "epoch": self.epoch,
                "scope": "__global__",
                "topic": self.topic,
                "totalQueues": len(self.parts),
            }
            for name in self.brokers
            if name in registered
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request for a static topic's queue, on the broker that owns it."""

    topic: StaticTopic
    replica: Replica
    masters: Callable[[str], Replica]
    plain: Operation
    frame: Frame
    limits: PullLimits

    def at(self, part: Part, request: RequestHeader) -> Reply:
        """Execute a request for a part's queue on the part's broker."""
        frame = replace(self.frame, command=replace(self.frame.command, fields=request.fields()))
        return self.plain(self.home(part), frame, self.limits)

    def home(self, part: Part) -> Replica:
        """Return the server of a part."""
        return self.replica if part.broker == self.replica.store.name else self.masters(part.broker)


def static_requests(
    plain: Mapping[int, Operation],
    topics: MutableMapping[str, StaticTopic],
    masters: Callable[[str], Replica],
) -> dict[int, Operation]:
    """Return the brokers' operations for requests on topics that may be static, and on their queues.

    Parameters
    ----------
    plain : mapping of int to Operation
        The operations for other topics, and for physical queues.
    topics : mapping of str to StaticTopic
        A topic that is deleted on its last broker is removed.
    masters : Callable
        Returns the master of a broker, or fails while it is down.
    """

    def route(kind: type[RequestHeader], execute: _Execute, refusal: str) -> Operation:
        operation = plain[kind.CODE]

        def serve(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
            if not topics:
                return operation(replica, frame, limits)
            request: Any = kind.parse(frame.command.fields)
            topic = topics.get(request.topic)
            if topic is None:
                return operation(replica, frame, limits)
            queue_id, name = request.queue_id, replica.store.name
            if queue_id not in topic.parts or topic.owner(queue_id) != name:
                place = f"{request.topic}-{queue_id}"
                raise Refused(ResponseCode.NOT_LEADER_FOR_QUEUE, refusal.format(place=place, broker=name))
            asked = _Asked(
                topic=topic, replica=replica, masters=masters, plain=operation, frame=frame, limits=limits
            )
            return execute(asked, request)

        return serve

    return {
        **{kind.CODE: route(kind, execute, refusal) for kind, execute, refusal in _REQUESTS},
        DeleteTopicRequest.CODE: _deleting(plain[DeleteTopicRequest.CODE], topics),
    }


def _deleting(delete: Operation, topics: MutableMapping[str, StaticTopic]) -> Operation:
    """Return the operation that deletes a topic on a broker with its mapping; on the last, with its parts."""

    def serve(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
        reply = delete(replica, frame, limits)
        name = DeleteTopicRequest.parse(frame.command.fields).topic
        topic = topics.get(name)
        if topic is not None:
            topic.brokers = tuple(broker for broker in topic.brokers if broker != replica.store.name)
            if not topic.brokers:
                del topics[name]
        return reply

    return serve


_Execute = Callable[[_Asked, Any], Reply]


def _send(asked: _Asked, request: SendMessageRequest) -> Reply:
    part = asked.topic.parts[request.queue_id][-1]
    reply = asked.at(part, replace(request, queue_id=part.queue_id))
    placed = SendMessageResponse.parse(reply.fields)
    logical = replace(placed, queue_id=request.queue_id, queue_offset=placed.queue_offset + part.begin)
    return replace(reply, fields={**reply.fields, **logical.fields()})


def _pull(asked: _Asked, request: PullMessageRequest) -> Reply:
    parts = asked.topic.parts[request.queue_id]
    number = asked.topic.part_of(request.queue_id, request.queue_offset)
    part = parts[number]
    offset = max(0, request.queue_offset - part.begin)
    reply = asked.at(part, replace(request, queue_id=part.queue_id, queue_offset=offset))
    header = PullMessageResponse.parse(reply.fields)
    code, begin, end = reply.code, header.min_offset, header.max_offset
    next_offset = header.next_begin_offset
    if code != ResponseCode.SUCCESS and offset >= end and number + 1 < len(parts):
        part = parts[number + 1]
        code, next_offset, begin, end = ResponseCode.PULL_RETRY_IMMEDIATELY, 0, 0, 0
    elif code == ResponseCode.PULL_OFFSET_MOVED and offset > end and number == 0:
        code = ResponseCode.PULL_NOT_FOUND
    known_end = parts[-1].begin if len(parts) > 1 else 0
    logical = replace(
        header,
        next_begin_offset=part.begin + next_offset,
        min_offset=part.begin + begin,
        max_offset=max(part.begin + end, known_end),
        offset_delta=part.begin,
    )
    waits = reply.wait_ms if len(parts) == number + 1 else None
    fields = {**reply.fields, **logical.fields()}
    again = without_commit(asked.frame) if waits is not None else None
    return replace(reply, code=code, fields=fields, remark=None, wait_ms=waits, again=again)


def _max_offset(asked: _Asked, request: GetMaxOffsetRequest) -> Reply:
    return _shift(asked, request, asked.topic.parts[request.queue_id][-1])


def _min_offset(asked: _Asked, request: GetMinOffsetRequest) -> Reply:
    return _shift(asked, request, asked.topic.parts[request.queue_id][0])


def _shift(asked: _Asked, request: Any, part: Part) -> Reply:
    reply = asked.at(part, replace(request, queue_id=part.queue_id))
    found = OffsetResponse.parse(reply.fields).offset
    return replace(reply, fields=OffsetResponse(offset=part.begin + found).fields())


def _search(asked: _Asked, request: SearchOffsetRequest) -> Reply:
    """Respond as a real broker does: the last part checked overwrites an earlier part's result."""
    parts = asked.topic.parts[request.queue_id]
    offset = -1
    for part in parts:
        reply = asked.at(part, replace(request, queue_id=part.queue_id))
        found = OffsetResponse.parse(reply.fields).offset
        offset = part.begin + found
        if part.broker == parts[-1].broker:
            if found > 0:
                break
            offset = 0
    return Reply(fields=OffsetResponse(offset=offset).fields())


def _query_offset(asked: _Asked, request: QueryConsumerOffsetRequest) -> Reply:
    parts = asked.topic.parts[request.queue_id]
    if len(parts) == 1:
        return asked.at(parts[0], replace(request, queue_id=parts[0].queue_id))
    for part in reversed(parts):
        here = MessageQueue(request.topic, part.broker, part.queue_id)
        committed = asked.home(part).store.position(request.consumer_group, here)
        if committed is not None and committed >= 0:
            return Reply(fields=OffsetResponse(offset=part.begin + committed).fields())
    raise Refused(ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first")


def _update_offset(asked: _Asked, request: UpdateConsumerOffsetRequest) -> Reply:
    number = asked.topic.part_of(request.queue_id, request.commit_offset)
    part = asked.topic.parts[request.queue_id][number]
    commit = request.commit_offset - part.begin
    return asked.at(part, replace(request, queue_id=part.queue_id, commit_offset=commit))


_NOT_HERE: Final = "{place} does not exit in request process of current broker {broker}"

_REQUESTS: Final[tuple[tuple[type[RequestHeader], _Execute, str], ...]] = (
    (SendMessageRequest, _send, _NOT_HERE),
    (SendBatchMessageRequest, _send, _NOT_HERE),
    (
        PullMessageRequest,
        _pull,
        "{place} cannot find mapping item in request process of current broker {broker}",
    ),
    (GetMaxOffsetRequest, _max_offset, _NOT_HERE),
    (
        GetMinOffsetRequest,
        _min_offset,
        f"{{place}} is not leader in broker {{broker}}, request code {RequestCode.GET_MIN_OFFSET:d}",
    ),
    (SearchOffsetRequest, _search, _NOT_HERE),
    (QueryConsumerOffsetRequest, _query_offset, _NOT_HERE),
    (UpdateConsumerOffsetRequest, _update_offset, _NOT_HERE),
)
