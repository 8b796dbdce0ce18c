"""What the answers to pulls say, and which of their holes are no loss."""

# Facts (PullMessageProcessor, DefaultMessageStore.getMessage; RocketMQ 4.9 and 5.4)
# - nextBeginOffset is the only way forward; PULL_RETRY_IMMEDIATELY (20) from a slave may repeat the offset.
# - The remark is the store's status. NO_MATCHED_MESSAGE is a filter's scan. MESSAGE_WAS_REMOVING (20) and
#   OFFSET_FOUND_NULL (19) jump over entries whose files are gone, in the commit log or the consume queue.
# - Those jumps are legitimate where a static topic's queue moved, and in compacted topics.

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.net.pull_lanes import PullChannel
from pyspark_rocketmq.client.requests import PullAnswer
from pyspark_rocketmq.errors import RemoteProtocolError, RocketMQError, ServiceNotAvailableError
from pyspark_rocketmq.model import MASTER_ID, MessageQueue, MessageSelector, PullStatus
from pyspark_rocketmq.record.decode.arrow import Chunk
from pyspark_rocketmq.record.decode.holes import find_holes
from pyspark_rocketmq.record.layout import MIN_RECORD_SIZE
from pyspark_rocketmq.record.light_queue import is_light
from pyspark_rocketmq.remoting.body import decode_topic_config
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.failure import limits_cold_data
from pyspark_rocketmq.remoting.header import GetTopicConfigRequest, PullMessageResponse

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = [
    "GroupResetError",
    "PullPayload",
    "Records",
    "Removed",
    "Scanned",
    "check_advance",
    "check_pull",
    "count_records",
    "has_natural_holes",
    "is_busy",
    "is_reset",
    "position",
    "queue_is_gone",
    "scans_for_filter",
    "slave_is_closed",
]


_LONG: Final = 2**63


@dataclass(frozen=True, slots=True)
class Records:
    """An answer with records."""

    response: Response
    offset_delta: int
    next_offset: int

    def chunk(self, from_offset: int, until_offset: int) -> Chunk:
        """Return the records of these offsets."""
        it = self.response
        return Chunk(
            it.buffer,
            it.start,
            it.end,
            from_offset,
            until_offset,
            self.offset_delta,
            answer_until=self.next_offset,
        )


class Scanned:
    """An answer without records: the filter accepted none, or the topic has none there."""


class Removed:
    """An answer without records where there were some: a loss, once its turn comes."""


PullPayload: TypeAlias = Records | Scanned | Removed


class GroupResetError(RocketMQError):
    """An operator has reset the group, whose member continues at ``offset``. No broker tells it twice."""

    def __init__(self, offset: int) -> None:
        super().__init__("an operator has reset the group's offset", offset=offset)
        self.offset = offset


def position(fields: Mapping[str, str]) -> tuple[int, int, int]:
    """Return next begin offset, suggested broker id and offset delta: all that an answer with records needs.

    A third of the cost of `PullMessageResponse.parse`, which says what is wrong with the others.
    """
    try:
        found = (
            int(fields["nextBeginOffset"]),
            int(fields.get("suggestWhichBrokerId", MASTER_ID)),
            int(fields.get("offsetDelta", 0)),
        )
    except (KeyError, ValueError):
        pass
    else:
        if min(found) >= -_LONG and max(found) < _LONG:
            return found
    header = PullMessageResponse.parse(fields)
    return header.next_begin_offset, header.suggest_which_broker_id, header.offset_delta


def count_records(body: memoryview) -> int:
    """Count the records of an answer by their sizes; a malformed one is the decoder's to report."""
    count = position = 0
    while position + MIN_RECORD_SIZE <= len(body):
        size = int.from_bytes(body[position : position + 4], "big", signed=True)
        count += 1
        position += max(size, MIN_RECORD_SIZE)
    return count


def queue_is_gone(response: Response) -> bool:
    """Whether the broker has no such topic or queue; 4.9 has no separate code for the latter."""
    match response.code:
        case ResponseCode.TOPIC_NOT_EXIST | ResponseCode.INVALID_PARAMETER:
            return True
        case ResponseCode.SYSTEM_ERROR:
            return (response.remark or "").startswith("queueId[")
        case _:
            return False


def is_busy(response: Response) -> bool:
    """Return whether the broker rejected only this pull; others in flight may succeed."""
    if response.code in {ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL}:
        return not slave_is_closed(response.remark)
    return limits_cold_data(response.code, response.remark)


def is_reset(response: Response, header: PullMessageResponse, offset: int) -> bool:
    """Return whether PULL_OFFSET_MOVED is the answer to a pull at ``offset`` after a reset of its group.

    Of a static topic's queue the remark is left out: an offset that exists means a reset, too.
    """
    return response.remark == "OFFSET_RESET" or header.min_offset <= offset < header.max_offset


def slave_is_closed(remark: str | None) -> bool:
    """Return whether a busy answer is that of a slave without ``slaveReadEnable``."""
    return "REJECTREQUEST" in (remark or "")


def scans_for_filter(response: Response) -> bool:
    """Return whether an answer without records is a filter's scan that found no match."""
    return response.code == ResponseCode.PULL_RETRY_IMMEDIATELY and response.remark != "MESSAGE_WAS_REMOVING"


def has_natural_holes(
    client: Client,
    queue: MessageQueue,
    deadline: Deadline,
    must_know: bool = True,
    slave: PullChannel | None = None,
) -> bool:
    """Ask whether offsets of a queue may lack a message without a loss: a compacted or a static topic.

    Who may not know the topic's settings, and need not, takes holes for losses.

    Parameters
    ----------
    client, queue, deadline
    must_know : bool
    slave : PullChannel, optional
        A slave that has holes. It is asked first: a compacted topic stays one, and the master may be away.

    Raises
    ------
    RocketMQError
        As `Client.ask`: the master did not answer.
    """
    if is_light(queue.topic):  # no broker has settings of one
        return False
    if queue.logical or client.served_route(queue.topic).static_queues:
        return True

    def is_compacted(response: Response) -> bool:
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # 4.9, which does not compact; a proxy
            return False
        if response.code == ResponseCode.NO_PERMISSION and not must_know:
            return False
        config = decode_topic_config(response.require(queue=queue).body)
        return config.attributes.get("cleanup.policy") == "COMPACTION"

    call = Call(GetTopicConfigRequest(topic=queue.topic), is_compacted)
    if slave is not None:
        with contextlib.suppress(RocketMQError):  # a new slave does not know its master's topics yet
            if call.on(slave, deadline=deadline):
                return True
    return client.ask({queue: call}, deadline=deadline)[queue]


def check_advance(answer: PullAnswer, queue: MessageQueue, begin: int) -> None:
    """Refuse messages whose next offset returns them again.

    Raises
    ------
    RemoteProtocolError
    """
    end = answer.header.next_begin_offset
    if answer.status is PullStatus.FOUND and end <= begin:
        raise RemoteProtocolError(
            f"a broker returned messages and a next offset ({end}) that does not follow them",
            queue=str(queue),
            offset=begin,
        )


def check_pull(
    answer: PullAnswer,
    queue: MessageQueue,
    begin: int,
    selector: MessageSelector,
    is_master: Callable[[], bool],
) -> None:
    """Refuse an answer that leads nowhere, or one by which a slave would decide that messages are lost.

    For callers that pull one request at a time and continue where the master says.

    Parameters
    ----------
    answer : PullAnswer
    queue : MessageQueue
    begin : int
        The offset that was asked for.
    selector : MessageSelector
    is_master : Callable
        Whether the answer is the master's; asked only where it matters.

    Raises
    ------
    RocketMQError
        The pull is to be repeated: of a slave until its master is back.
    """
    check_advance(answer, queue, begin)
    end, found = answer.header.next_begin_offset, answer.status is PullStatus.FOUND
    if _is_gone(answer, begin, selector) and not is_master():
        raise _not_at_slave(queue, begin)
    if found and selector.takes_all and not is_master():
        chunk = Chunk(answer.records, 0, len(answer.records), begin, end, answer.header.offset_delta)
        if find_holes([chunk], queue.topic):
            raise _not_at_slave(queue, begin)


def _is_gone(answer: PullAnswer, begin: int, selector: MessageSelector) -> bool:
    """Return whether an answer without records skips messages that no filter rejected."""
    match answer.status:
        case PullStatus.OFFSET_ILLEGAL:
            return True
        case PullStatus.NO_NEW_MSG:
            return answer.header.next_begin_offset > begin
        case PullStatus.NO_MATCHED_MSG:
            return selector.takes_all and answer.header.next_begin_offset > begin
        case PullStatus.FOUND:
            return False
        case _:
            assert_never(answer.status)


def _not_at_slave(queue: MessageQueue, offset: int) -> ServiceNotAvailableError:
    return ServiceNotAvailableError(
        "the slave does not have these messages; its master may, and is waited for",
        code=ResponseCode.PULL_NOT_FOUND,
        queue=str(queue),
        offset=offset,
    )
