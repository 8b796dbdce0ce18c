"""A mock broker's operations by request, as in RocketMQ 5.4.0.

``tests/contract/test_behaviour.py`` compares them with a real broker. Intended differences: a message can be
read as soon as its send is acknowledged, and a suspended pull ends when its time is over (a real broker
checks every 5 s).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.inventory import TopicConfig
from pyspark_rocketmq.model import MASTER_ID, MessageQueue, MessageSelector, Permission
from pyspark_rocketmq.record.batch_items import decode_batch
from pyspark_rocketmq.record.layout import MessageFlag
from pyspark_rocketmq.record.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQUE_KEY,
)
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.remoting.header import (
    EndTransactionRequest,
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    OffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueryConsumerOffsetRequest,
    SearchOffsetRequest,
    SendMessageRequest,
    SendMessageResponse,
    UpdateConsumerOffsetRequest,
)
from pyspark_rocketmq.remoting.java_hash import java_hash
from pyspark_rocketmq.testing.handlers.execution import Refused
from pyspark_rocketmq.testing.log import Pulled, PullLimits
from pyspark_rocketmq.testing.store import BrokerStore, HalfMessage, Placed, parse_properties
from pyspark_rocketmq.testing.wire import Reply

__all__ = ["Replica", "broker_requests", "broker_settings", "without_commit"]

_MAX_COUNT: Final = "maxTransferCountOnMessageInMemory"
_MAX_BYTES: Final = "maxTransferBytesOnMessageInMemory"
_COMMIT: Final = 1
_SUSPEND: Final = 2
_SUBSCRIPTION: Final = 4
_TRANSACTION_BITS: Final = MessageFlag.TRANSACTION_PREPARED | MessageFlag.TRANSACTION_COMMIT
_MAX_MESSAGE_BYTES: Final = 4 << 20
_MAX_PROPERTIES_BYTES: Final = 32_767


@dataclass(slots=True)
class Replica:
    """One server of a broker: its master, or a slave that serves the same messages with some lag.

    Parameters
    ----------
    store : BrokerStore
    broker_id : int
    now_ms : Callable
    readable : bool
        ``slaveReadEnable``: if False, a slave rejects pulls.
    lag : int
        The number of newest messages of each queue that a slave does not have yet.
    """

    store: BrokerStore
    broker_id: int
    now_ms: Callable[[], int]
    readable: bool = True
    lag: int = 0

    @property
    def is_slave(self) -> bool:
        """Whether the server is a slave."""
        return self.broker_id != MASTER_ID

    @property
    def limits(self) -> PullLimits:
        """The limits of one pull response in the broker's settings."""
        settings = self.store.settings
        return _limits(settings[_MAX_COUNT], settings[_MAX_BYTES])

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return this replica's max offset."""
        log = self.store.log(topic, queue_id)
        return max(log.min_offset, log.max_offset - self.lag)


@functools.lru_cache
def _limits(messages: str, body_bytes: str) -> PullLimits:
    return PullLimits(int(messages), int(body_bytes))


def broker_settings(broker: str, cluster: str, limits: PullLimits) -> dict[str, str]:
    """Return a mock broker's settings. The limits can be changed while it runs."""
    return {
        "brokerName": broker,
        "brokerClusterName": cluster,
        _MAX_COUNT: str(limits.messages),
        _MAX_BYTES: str(limits.body_bytes),
    }


Operation = Callable[[Replica, Frame, PullLimits], Reply]


def broker_requests() -> dict[int, Operation]:
    """Return a broker's operations by request code for messages and offsets."""
    return {
        RequestCode.PULL_MESSAGE: _pull,
        RequestCode.SEND_MESSAGE_V2: _send,
        RequestCode.SEND_BATCH_MESSAGE: _send,
        RequestCode.END_TRANSACTION: _end_transaction,
        RequestCode.GET_MAX_OFFSET: _max_offset,
        RequestCode.GET_MIN_OFFSET: _min_offset,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _search,
        RequestCode.GET_EARLIEST_MSG_STORETIME: _earliest,
        RequestCode.QUERY_CONSUMER_OFFSET: _query_offset,
        RequestCode.UPDATE_CONSUMER_OFFSET: _update_offset,
    }


# --- pulling --------------------------------------------------------------------------------


def _pull(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    request = PullMessageRequest.parse(frame.command.fields)
    store, key = replica.store, (request.consumer_group, request.topic, request.queue_id)
    if replica.is_slave and not replica.readable:
        raise Refused(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")
    config = _topic(store, request.topic)
    store.create_group(request.consumer_group)
    if Permission.READ not in config.perm:
        raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{request.topic}] pulling message is forbidden")
    if not 0 <= request.queue_id < config.read_queues:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{request.queue_id}] is illegal, topic:[{request.topic}] "
            f"topicConfig.readQueueNums:[{config.read_queues}]",
        )
    hashes = _tag_hashes(request)
    log = store.log(request.topic, request.queue_id)
    max_offset = replica.max_offset(request.topic, request.queue_id)
    if key in store.resets and not replica.is_slave:
        pulled = Pulled(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", store.resets.pop(key))
    else:
        pulled = log.pull(
            request.queue_offset,
            request.max_msg_nums,
            limits=limits,
            tag_hashes=hashes,
            max_offset=max_offset,
            slave=replica.is_slave,
        )
    if request.sys_flag & _COMMIT:
        store.committed[key] = request.commit_offset
    header = PullMessageResponse(
        next_begin_offset=pulled.next_begin_offset,
        min_offset=log.min_offset,
        max_offset=max_offset,
        topic_sys_flag=0,
        group_sys_flag=0,
    )
    waits = request.sys_flag & _SUSPEND and pulled.code == ResponseCode.PULL_NOT_FOUND
    return Reply(
        pulled.code,
        header.fields(),
        pulled.records,
        pulled.remark,
        wait_ms=request.suspend_timeout_millis if waits else None,
        again=without_commit(frame) if waits else None,
    )


def without_commit(frame: Frame) -> Frame:
    """Return a pull that commits nothing: one that has waited has committed when it came."""
    request = PullMessageRequest.parse(frame.command.fields)
    fields = replace(request, sys_flag=request.sys_flag & ~_COMMIT).fields()
    return replace(frame, command=replace(frame.command, fields=fields))


def _tag_hashes(request: PullMessageRequest) -> frozenset[int] | None:
    """Return the tag hashes that a pull requests, or None for all."""
    if not request.sys_flag & _SUBSCRIPTION:
        raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
    if request.expression_type not in (None, "", "TAG"):
        raise Refused(
            ResponseCode.SYSTEM_ERROR, "The broker does not support consumer to filter message by SQL92"
        )
    return _hashes(request.subscription or "*")


@functools.lru_cache
def _hashes(text: str) -> frozenset[int] | None:
    tags = MessageSelector(" || ".join(part.strip() for part in text.split("||"))).tags
    if tags is not None and not tags - {""}:
        raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
    return None if tags is None else frozenset(java_hash(tag) for tag in tags if tag)


# --- sending --------------------------------------------------------------------------------


def _send(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    request = SendMessageRequest.parse(frame.command.fields)
    store = replica.store
    if replica.is_slave:
        raise Refused(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")
    config = store.topics.get(request.topic)
    if config is None:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{request.topic}] not exist, apply first please!")
    queue_id = store.any_queue(request.topic) if request.queue_id < 0 else request.queue_id
    if not store.has_queue(request.topic, queue_id):
        raise Refused(ResponseCode.INVALID_PARAMETER, f"request queueId[{queue_id}] is illegal")
    if len(frame.body) > _MAX_MESSAGE_BYTES or len(request.properties.encode()) > _MAX_PROPERTIES_BYTES:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL, "the message is illegal, maybe msg body or properties too long"
        )
    if not len(frame.body):
        raise Refused(ResponseCode.SYSTEM_ERROR, "java.lang.NullPointerException")
    if parse_properties(request.properties).get(PROPERTY_TRANSACTION_PREPARED) == "true":
        return _stored(request, queue_id, [_half(request, frame, queue_id, store)])
    now_ms = replica.now_ms()  # one for a whole batch
    placed = [
        store.append(
            request.topic,
            queue_id,
            body,
            properties,
            sys_flag=request.sys_flag,
            flag=flag,
            born_timestamp=request.born_timestamp,
            store_timestamp=now_ms,
        )
        for body, properties, flag in _contents(request, frame, store)
    ]
    return _stored(request, queue_id, placed)


def _contents(
    request: SendMessageRequest, frame: Frame, store: BrokerStore
) -> list[tuple[bytes, dict[str, str], int]]:
    """Return body, properties and flag of each message. A batch's messages are stored as received."""
    if request.batch:
        try:
            return [(item.body, dict(item.properties), item.flag) for item in decode_batch(frame.body)]
        except CorruptMessageError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, error.message) from error
    properties = parse_properties(request.properties)
    added = {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": store.settings["brokerClusterName"],
    }
    return [(bytes(frame.body), {**properties, **added}, request.flag)]


def _stored(request: SendMessageRequest, queue_id: int, placed: list[Placed]) -> Reply:
    unique = None if request.batch else parse_properties(request.properties).get("UNIQ_KEY")
    header = SendMessageResponse(
        msg_id=",".join(one.msg_id for one in placed),
        queue_id=queue_id,
        queue_offset=placed[0].offset if placed else 0,
        transaction_id=unique,
    )
    return Reply(fields={**header.fields(), "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"})


# --- transactions ---------------------------------------------------------------------------


def _half(request: SendMessageRequest, frame: Frame, queue_id: int, store: BrokerStore) -> Placed:
    ((body, properties, flag),) = _contents(request, frame, store)
    half = HalfMessage(
        offset=0,
        topic=request.topic,
        queue_id=queue_id,
        body=body,
        properties={**properties, PROPERTY_TRANSACTION_ID: properties[PROPERTY_UNIQUE_KEY]},
        sys_flag=request.sys_flag & ~_TRANSACTION_BITS,
        flag=flag,
        born_timestamp=request.born_timestamp,
    )
    return store.append_half(half)


def _end_transaction(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    """Commit or roll back. As on a real broker, repeating it is not an error."""
    del limits
    request = EndTransactionRequest.parse(frame.command.fields)
    if replica.is_slave:
        raise Refused(
            ResponseCode.SLAVE_NOT_AVAILABLE,
            "Transaction service is not allowed to commit or rollback in a slave broker.",
        )
    half = replica.store.half(request.commit_log_offset)
    if half is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
    if half.properties.get(PROPERTY_PRODUCER_GROUP) != request.producer_group:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if half.offset != request.tran_state_table_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    if request.commit_or_rollback == MessageFlag.TRANSACTION_COMMIT:
        replica.store.append(
            half.topic,
            half.queue_id,
            half.body,
            half.properties,
            sys_flag=half.sys_flag | MessageFlag.TRANSACTION_COMMIT,
            flag=half.flag,
            born_timestamp=half.born_timestamp,
            store_timestamp=replica.now_ms(),
            prepared_transaction_offset=request.commit_log_offset,
        )
    return Reply()


# --- offsets --------------------------------------------------------------------------------


def _offset(value: int) -> Reply:
    return Reply(fields=OffsetResponse(offset=value).fields())


def _max_offset(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    request = GetMaxOffsetRequest.parse(frame.command.fields)
    return _offset(replica.max_offset(request.topic, request.queue_id))


def _min_offset(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    request = GetMinOffsetRequest.parse(frame.command.fields)
    return _offset(replica.store.log(request.topic, request.queue_id).min_offset)


def _search(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    request = SearchOffsetRequest.parse(frame.command.fields)
    log = replica.store.log(request.topic, request.queue_id)
    lower = log.search(request.timestamp)
    if request.boundary_type.lower() != "upper":
        return _offset(lower)
    behind = log.search(request.timestamp + 1)
    return _offset(max(log.min_offset, behind - 1))


def _earliest(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    request = GetEarliestMsgStoretimeRequest.parse(frame.command.fields)
    messages = replica.store.log(request.topic, request.queue_id).messages
    timestamp = messages[0].store_timestamp if messages else -1
    return Reply(fields=GetEarliestMsgStoretimeResponse(timestamp=timestamp).fields())


def _query_offset(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    request = QueryConsumerOffsetRequest.parse(frame.command.fields)
    queue = MessageQueue(request.topic, replica.store.name, request.queue_id)
    committed = replica.store.position(request.consumer_group, queue)
    if committed is not None and committed >= 0:
        return _offset(committed)
    # Without the flag a queue that still has its first message counts as consumed up to 0.
    if "setZeroIfNotFound" not in frame.command.fields or request.set_zero_if_not_found:
        log = replica.store.log(request.topic, request.queue_id)
        if log.min_offset == 0:
            return _offset(0)
    raise Refused(
        ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    )


def _update_offset(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    request = UpdateConsumerOffsetRequest.parse(frame.command.fields)
    store = replica.store
    if request.consumer_group not in store.groups:
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {request.consumer_group} not exist!")
    if request.topic not in store.topics:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {request.topic} not exist!")
    store.committed[(request.consumer_group, request.topic, request.queue_id)] = request.commit_offset
    return Reply()


def _topic(store: BrokerStore, topic: str) -> TopicConfig:
    if topic not in store.topics:
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
    return store.topics[topic]
