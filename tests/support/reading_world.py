"""A topic with everything that readers stumble over, on a real RocketMQ and on a mock cluster with faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, OutgoingMessage, Producer, ProducerOptions, PullConsumer
from pyspark_rocketmq.client.send.message_encoding import encode_one
from pyspark_rocketmq.model import Message, MessageQueue, SendResult
from pyspark_rocketmq.record.compress import Compression
from pyspark_rocketmq.remoting.header import EndTransactionRequest
from pyspark_rocketmq.testing import Injection

__all__ = ["FIELDS", "TAG", "World", "create_world", "of_message", "of_row"]

TAG: Final = "Aa"
TAGS: Final = (TAG, "BB", None)
"""The first two have one hash: brokers take the one for the other."""

_NOT_IN_ROWS: Final = {"commit_log_offset", "store_size"}
FIELDS: Final = tuple(name for name in Message._fields if name not in _NOT_IN_ROWS)
"""What every way tells of a message."""

_TRANSACTION_PREPARED: Final = 4
_COMMIT, _ROLL_BACK = 8, 12

Fields = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class World:
    """A topic and what it must give: by queue, in the order of offsets."""

    name_server: str
    topic: str
    expected: dict[MessageQueue, list[Message]]
    ends: dict[MessageQueue, int]
    make_trouble: Callable[[], list[Injection]] = list
    """Injects faults for one test."""

    def check(self, found: list[Fields], *, tag: str | None = None) -> None:
        """Assert that these are the messages, each once, with every field, in order within each queue."""
        by_queue: dict[MessageQueue, list[Fields]] = defaultdict(list)
        for values in found:
            by_queue[MessageQueue(*values[:3])].append(values)
        wanted = {
            queue: [of_message(message) for message in messages if tag in (None, message.tags)]
            for queue, messages in self.expected.items()
        }
        assert set(by_queue) == {queue for queue, messages in wanted.items() if messages}
        for queue, values in by_queue.items():
            assert [one[3] for one in values] == [one[3] for one in wanted[queue]], queue
            for one, right in zip(values, wanted[queue], strict=True):
                assert dict(zip(FIELDS, one, strict=True)) == dict(zip(FIELDS, right, strict=True))

    def count(self, tag: str | None = None) -> int:
        """How many messages there are."""
        return sum(tag in (None, message.tags) for each in self.expected.values() for message in each)


def of_message(message: Message) -> Fields:
    """Return the fields that are compared."""
    values = {name: getattr(message, name) for name in FIELDS} | {"properties": dict(message.properties)}
    return tuple(values[name] for name in FIELDS)


def of_row(row: dict[str, Any]) -> Fields:
    """Return the same of a row with all columns, of Spark or of Arrow."""
    snake = {_snake(name): value for name, value in row.items()}
    for name in ("born_timestamp", "store_timestamp"):
        snake[name] = round(snake[name].timestamp() * 1000)
    snake["body"] = bytes(snake["body"])
    snake["properties"] = dict(snake["properties"])
    return tuple(snake[name] for name in FIELDS)


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


# --- what is in the topic -------------------------------------------------------------------


def create_world(
    client: Client,
    name_server: str,
    topic: str,
    *,
    gap: Callable[[MessageQueue], None] | None = None,
    transactions: bool = False,
    make_trouble: Callable[[], list[Injection]] = list,
) -> World:
    """Send to all queues but each broker's last one, which stays empty; return what is to be read.

    Parameters
    ----------
    gap : Callable, optional
        Leaves offsets without messages.
    transactions : bool
        Send half messages too: some are committed, some rolled back, some never decided.
    make_trouble : Callable, optional
        Injects faults, and returns them.
    """
    sent: dict[tuple[MessageQueue, int], OutgoingMessage] = {}
    queues = client.write_queues(topic)
    empty = {max(q for q in queues if q.broker_name == name) for name in {q.broker_name for q in queues}}
    for queue in sorted(set(queues) - empty):
        for number, compression in enumerate((Compression.ZLIB, Compression.LZ4, Compression.ZSTD)):
            producer = Producer(client, options=ProducerOptions(compression=compression))
            for message in _messages(topic, f"{queue.broker_name}-{queue.queue_id}-{number}"):
                sent[queue, producer.send(message, queue).queue_offset] = message
            batch = [OutgoingMessage(topic, b"batch %d" % n, tags=TAG, keys=f"b{n}") for n in range(9)]
            first = producer.send_batch(batch, queue).queue_offset
            sent |= {(queue, first + at): message for at, message in enumerate(batch)}
            if gap is not None:
                gap(queue)
            if transactions:
                _send_transactions(client, producer, queue)
    # A committed half message gets its place when the broker has ended the transaction.
    commits = len(set(queues) - empty) * 3 if transactions else 0
    consumer = PullConsumer("world", client=client)
    expected: dict[MessageQueue, list[Message]] = {}

    def all_there() -> bool:
        expected.update({queue: _read(consumer, queue) for queue in queues})
        return sum(map(len, expected.values())) == len(sent) + commits

    eventually(all_there, 30, what="everything that was sent")
    _check_content(expected, sent)
    return World(name_server, topic, expected, client.max_offsets(queues), make_trouble)


def _messages(topic: str, prefix: str) -> list[OutgoingMessage]:
    return [
        OutgoingMessage(
            topic,
            f"{prefix} {number}".encode() * (700 if number % 5 == 0 else 1),  # above 4096 bytes: compressed
            tags=TAGS[number % 3],
            keys=f"{prefix}-{number}" if number % 2 else (),
            properties={"région": "ü✓", "number": str(number)} if number % 4 else {},
            flag=number - 3,
        )
        for number in range(14)
    ]


def _send_transactions(client: Client, producer: Producer, queue: MessageQueue) -> None:
    for decision in (_COMMIT, _ROLL_BACK, None):
        outgoing = encode_one(OutgoingMessage(queue.topic, b"half %d" % (decision or 0)), producer.ids)
        half = replace(
            outgoing,
            properties=f"{outgoing.properties}TRAN_MSG\x01true\x02PGROUP\x01world\x02",
            sys_flag=_TRANSACTION_PREPARED,
        )
        result = producer.deliver(half, queue)
        if decision is not None:
            _end_transaction(client, queue, result, decision)


def _end_transaction(client: Client, queue: MessageQueue, result: SendResult, decision: int) -> None:
    # Facts: DefaultMQProducerImpl.endTransaction; the id ends with the offset in the commit log.
    address = client.broker_address(queue.broker_name, topic=queue.topic)
    client.connection(address).post(
        EndTransactionRequest(
            topic=queue.topic,
            producer_group="world",
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=int(result.offset_msg_id[-16:], 16),
            commit_or_rollback=decision,
            msg_id=result.msg_id,
            transaction_id=result.transaction_id,
            broker_name=queue.broker_name,
        ),
        b"",
    )


def _read(consumer: PullConsumer, queue: MessageQueue) -> list[Message]:
    found: list[Message] = []
    offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
    while offset < end:
        result = consumer.pull(queue, "*", offset)
        found += result.messages
        offset = result.next_begin_offset
    return found


def _check_content(
    expected: dict[MessageQueue, list[Message]], sent: dict[tuple[MessageQueue, int], OutgoingMessage]
) -> None:
    for queue, messages in expected.items():
        for message in messages:
            outgoing = sent.get((queue, message.queue_offset))
            if outgoing is None:
                assert message.body == b"half 8", "neither sent nor committed"
                continue
            assert (message.body, message.tags, message.flag) == (
                outgoing.body,
                outgoing.tags,
                outgoing.flag,
            )
            assert message.keys == (outgoing.keys or None)
            assert outgoing.properties.items() <= message.properties.items()
