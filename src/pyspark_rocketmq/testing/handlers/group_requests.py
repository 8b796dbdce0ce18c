"""Mock broker operations for members of consumer groups: heartbeats, locks, messages sent back.

Intended differences from RocketMQ: members are not notified of each other. Only members that unregister, or
whose broker ends, are removed. Messages that are sent back are available immediately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.model.names import dead_letter_topic, retry_topic
from pyspark_rocketmq.record.message import decode_messages
from pyspark_rocketmq.remoting.body.shape import queue_key, read, write
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.remoting.header import (
    ConsumerSendMsgBackRequest,
    GetConsumerListByGroupRequest,
    UnregisterClientRequest,
)
from pyspark_rocketmq.testing.handlers.execution import Refused
from pyspark_rocketmq.testing.handlers.requests import Replica
from pyspark_rocketmq.testing.log import PullLimits
from pyspark_rocketmq.testing.wire import Reply

__all__ = ["group_requests"]

_LOCK_LIVES_MS: Final = 60_000
_RETRY_TOPIC: Final = "RETRY_TOPIC"

Operation = Callable[[Replica, Frame, PullLimits], Reply]


def group_requests() -> dict[int, Operation]:
    """Return a broker's operations by request code for groups and their members."""
    return {
        RequestCode.HEART_BEAT: _heartbeat,
        RequestCode.UNREGISTER_CLIENT: _unregister,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: _members,
        RequestCode.LOCK_BATCH_MQ: _lock,
        RequestCode.UNLOCK_BATCH_MQ: _unlock,
        RequestCode.CONSUMER_SEND_MSG_BACK: _send_back,
    }


def _heartbeat(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    body = read(frame.body, "heartbeat")
    client_id = body["clientID"].string("")
    for data in body["consumerDataSet"].elements():
        group = data["groupName"].string()
        replica.store.create_group(group, retry_topic=True)
        replica.store.members.setdefault(group, set()).add(client_id)
    return Reply()


def _unregister(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    request = UnregisterClientRequest.parse(frame.command.fields)
    replica.store.members.get(request.consumer_group or "", set()).discard(request.client_id)
    return Reply()


def _members(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    request = GetConsumerListByGroupRequest.parse(frame.command.fields)
    members = replica.store.members.get(request.consumer_group)
    if not members:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {request.consumer_group}")
    return Reply(body=write({"consumerIdList": sorted(members)}))


def _lock(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    group, client_id, queues = _queue_lock(frame)
    now_ms, locks = replica.now_ms(), replica.store.locks
    locked = []
    for queue in queues:
        owner, until_ms = locks.get((group, queue), (client_id, 0))
        if owner == client_id or until_ms <= now_ms:
            locks[group, queue] = (client_id, now_ms + _LOCK_LIVES_MS)
            locked.append(queue)
    return Reply(body=write({"lockOKMQSet": [_place(queue) for queue in locked]}))


def _unlock(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    del limits
    group, client_id, queues = _queue_lock(frame)
    for queue in queues:
        owner, _ = replica.store.locks.get((group, queue), ("", 0))
        if owner == client_id:
            del replica.store.locks[group, queue]
    return Reply()


def _queue_lock(frame: Frame) -> tuple[str, str, list[MessageQueue]]:
    body = read(frame.body, "queue lock")
    queues = [queue_key(queue.value, queue.path) for queue in body["mqSet"].elements()]
    return body["consumerGroup"].string(), body["clientId"].string(), queues


def _place(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}


def _send_back(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
    """Store a message again for the group, or as a dead letter after the maximum of retries."""
    del limits
    request = ConsumerSendMsgBackRequest.parse(frame.command.fields)
    store = replica.store
    record = store.record_at(request.offset)
    if record is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {request.offset}")
    (message,) = decode_messages(record, broker_name=store.name)
    dead = request.delay_level < 0 or message.reconsume_times >= request.max_reconsume_times
    topic = (dead_letter_topic if dead else retry_topic)(request.group)
    store.create_inner_topic(topic)
    store.append(
        topic,
        0,
        message.body,
        {_RETRY_TOPIC: message.topic, **message.properties},
        sys_flag=0,
        flag=message.flag,
        born_timestamp=message.born_timestamp,
        store_timestamp=replica.now_ms(),
        reconsume_times=message.reconsume_times + 1,
    )
    return Reply()
