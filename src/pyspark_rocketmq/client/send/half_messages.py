"""Half messages: stored but invisible until the client commits or rolls them back at their broker."""

# Facts (EndTransactionProcessor, TransactionalMessageBridge, TransactionalMessageServiceImpl; 4.9 and 5.4)
# - A half message is a single send with bit 4 of sysFlag and the properties TRAN_MSG=true and PGROUP; batches
#   may not have the bit. It waits in the topic RMQ_SYS_TRANS_HALF_TOPIC, at the answer's queueOffset.
# - END_TRANSACTION finds it by commit-log offset, and compares group and half offset. A commit appends it to
# its own topic and queue. Brokers do not check whether that was done before: a second commit stores it again.
# - Brokers run END_TRANSACTION on several threads: two in flight may be stored in either order.
# - Code 1 says that there is no such half message (four remarks; a NullPointerException where an ordinary
#   message is at that place), or that the commit log did not take the commit now (page cache busy, too few
#   replicas in sync), or that anything else went wrong, perhaps after the commit was stored.
# - Requests that waited 3 s in the broker's queue are rejected (waitTimeMillsInTransactionQueue).
# - After 6 s (transactionTimeOut) a broker asks the group, every 30 s; each time it stores the half message
#   again. Those that it asked 15 times about go to TRANS_CHECK_MAX_TIME_TOPIC. The first copy can be
#   committed all the while; the newest copy waits on until it is rolled back, or was asked about that often.

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.net.connection import Connection, Response
from pyspark_rocketmq.client.retry import RetryPolicy
from pyspark_rocketmq.errors import (
    BrokerNotFoundError,
    ConnectError,
    NameServerError,
    RocketMQError,
    RouteError,
    SendError,
    SendRefusedError,
    ServiceNotAvailableError,
)
from pyspark_rocketmq.model import MessageQueue, SendResult
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.header import EndTransactionRequest
from pyspark_rocketmq.remoting.template import RequestTemplate

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["HALF_SCHEMA", "Ended", "Ending", "HalfMessages", "end_half_messages", "target_queues"]

HALF_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("halfOffset", pa.int64()),
        ("commitLogOffset", pa.int64()),
        ("msgId", pa.string()),
    ]
)
"""One half message per row: its destination, its current position, and its unique key."""

_IN_FLIGHT: Final = 256
_BACK_OFF: Final = RetryPolicy()
_OFFSET_DIGITS: Final = 16

_GONE: Final = (
    "find prepared transaction message failed",
    "the producer group wrong",
    "the transaction state table offset wrong",
    "the commit log offset wrong",
    "nullpointerexception",
)
"""Parts of the remarks, in lower case, with which a broker reports that it has no such half message."""

Places: TypeAlias = npt.NDArray[np.int64]


class Ending(enum.IntEnum):
    """The end of a half message: commit or rollback (``MessageSysFlag``)."""

    COMMIT = 8
    ROLLBACK = 12


class HalfMessages:
    """Collects the positions of half messages from the responses to their sends."""

    def __init__(self) -> None:
        self._columns: tuple[list[object], ...] = tuple([] for _ in HALF_SCHEMA)

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, result: SendResult) -> None:
        """Add the response to the send of a half message."""
        row = (
            result.queue.topic,
            result.queue.broker_name,
            result.queue.queue_id,
            result.queue_offset,
            int(result.offset_msg_id[-_OFFSET_DIGITS:], 16),
            result.msg_id,
        )
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def table(self) -> pa.Table:
        """Return the half messages, with `HALF_SCHEMA`."""
        return pa.table(list(self._columns), schema=HALF_SCHEMA)

    def pack(self) -> bytes:
        """Return the half messages as bytes, for the driver."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(
            sink, HALF_SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")
        ) as stream:
            stream.write_table(self.table())
        return bytes(sink.getvalue())

    @staticmethod
    def unpack(packed: Iterable[bytes]) -> pa.Table:
        """Return the packed half messages of several tasks as one table, task by task."""
        tables = [pa.ipc.open_stream(data).read_all() for data in packed if data]
        return pa.concat_tables(tables) if tables else HALF_SCHEMA.empty_table()


def target_queues(halves: pa.Table) -> tuple[MessageQueue, ...]:
    """Return the destination queues."""
    distinct = halves.group_by(["topic", "brokerName", "queueId"], use_threads=False).aggregate([])
    return tuple(
        sorted(MessageQueue(row["topic"], row["brokerName"], row["queueId"]) for row in distinct.to_pylist())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The half messages that are not known to be ended as requested.

    Parameters
    ----------
    unknown : pyarrow.Table
        Half messages that may or may not have been committed.
    gone : pyarrow.Table
        Half messages that their broker does not have.
    cause : RocketMQError, optional
        The cause of unknown ones.
    """

    unknown: pa.Table
    gone: pa.Table
    cause: RocketMQError | None


def end_half_messages(
    client: Client,
    group: str,
    halves: pa.Table,
    ending: Ending,
    *,
    outage_timeout_ms: int,
    in_order: bool = False,
    before_send: Callable[[], None] = lambda: None,
) -> Ended:
    """Commit or roll back half messages, each at its master, and wait for the responses.

    A request that was certainly not executed is retried, as long as other requests succeed. A commit that may
    have been executed is not retried: brokers would store the message twice. A rollback is.

    Parameters
    ----------
    client : Client
    group : str
        The producer group of the half messages.
    halves : pyarrow.Table
        A table with `HALF_SCHEMA`.
    ending : Ending
    outage_timeout_ms : int
        How long requests are retried while none succeeds.
    in_order : bool
        Store the messages of a queue in the rows' order: one request in flight per queue.
    before_send : Callable
        Called directly before requests are sent, at most 256 per broker. An exception ends the call.

    Raises
    ------
    SendError
        Requests were rejected permanently, or for ``outage_timeout_ms``.
    """
    waiting: Places = np.arange(halves.num_rows)
    unknown: list[int] = []
    gone: list[int] = []
    cause: RocketMQError | None = None
    failures = 0
    patience = client.deadline(outage_timeout_ms)
    while len(waiting):
        once = _Pass(client, group, ending, before_send)
        for batch in _rounds(halves, waiting, in_order=in_order):
            once.run(halves.take(pa.array(batch)), batch)
            if in_order and once.error is not None:
                break  # no request may overtake one that must be retried
        gone += once.gone
        over = once.done + once.gone
        waiting = np.setdiff1d(waiting, np.array(over, np.int64), assume_unique=True)
        if once.lost and ending is Ending.COMMIT:
            unknown += waiting.tolist() if in_order else once.lost
            waiting = np.setdiff1d(waiting, np.array(unknown, np.int64))
            cause = once.error
        if over:
            failures, patience = 0, client.deadline(outage_timeout_ms)
        if len(waiting) and once.error is not None:
            failures += 1
            pause_s = _BACK_OFF.pause_s(failures, client.random)
            if not once.error.retriable or patience.remaining_s <= pause_s:
                raise SendError(
                    f"{len(waiting)} half messages could not be ended: {once.error.message}",
                    failed=len(waiting),
                    **once.error.facts,
                ) from once.error
            for topic in pc.unique(halves["topic"]).to_pylist():
                client.invalidate(topic)
            client.clock.sleep(pause_s)
    return Ended(
        unknown=halves.take(pa.array(sorted(unknown), pa.int64())),
        gone=halves.take(pa.array(sorted(gone), pa.int64())),
        cause=cause,
    )


class _Pass:
    """One request for each of some half messages, and the outcomes.

    ``error`` is the worst one: of a request that was certainly not executed, or (``lost``) may have been.
    """

    def __init__(self, client: Client, group: str, ending: Ending, before_send: Callable[[], None]) -> None:
        self._client = client
        self._group = group
        self._ending = ending
        self._before_send = before_send
        self.done: list[int] = []
        self.lost: list[int] = []
        self.gone: list[int] = []
        self.error: RocketMQError | None = None

    def run(self, halves: pa.Table, rows: Places) -> None:
        """Send the requests of some half messages, selected by row, concurrently."""
        until = self._client.deadline(self._client.request_timeout_ms)
        flights: list[tuple[Connection, dict[int, int]]] = []
        # In the order of the rows: threads return groups in any order.
        places = halves.group_by(["topic", "brokerName"], use_threads=False).aggregate([])
        for place in places.to_pylist():
            topic, broker_name = place["topic"], place["brokerName"]
            mask = pc.and_(pc.equal(halves["topic"], topic), pc.equal(halves["brokerName"], broker_name))
            part, mine = halves.filter(mask), rows[mask.to_numpy()].tolist()
            columns = (part[name].to_pylist() for name in ("halfOffset", "commitLogOffset", "msgId"))
            try:
                connection = self._client.connection(self._master(topic, broker_name))
            except (ConnectError, RouteError) as error:
                self._record_error(error)
                continue
            self._before_send()
            try:
                opaques = connection.submit_many(
                    self._template(topic, broker_name), list(zip(*columns, strict=True)), deadline=until
                )
            except RocketMQError as error:
                self._lost(mine, error)
                continue
            flights.append((connection, dict(zip(opaques, mine, strict=True))))
        for connection, pending in flights:
            self._collect(connection, pending, until)

    def _master(self, topic: str, broker_name: str) -> str:
        """Return the address of a broker's master, even while name servers have forgotten the topic."""
        client = self._client
        try:
            route = client.find_route(topic)
            broker = client.find_broker(broker_name) if route is None else route.broker(broker_name)
        except NameServerError as error:  # they were up when the half messages were sent: an outage
            raise BrokerNotFoundError(error.message, **error.facts) from error
        if broker is None or broker.master is None:
            raise BrokerNotFoundError(
                "the broker of half messages is down", broker_name=broker_name, topic=topic
            )
        return broker.master

    def _template(self, topic: str, broker_name: str) -> RequestTemplate:
        request = EndTransactionRequest(
            topic=topic,
            producer_group=self._group,
            tran_state_table_offset=0,
            commit_log_offset=0,
            commit_or_rollback=int(self._ending),
            msg_id="",
            broker_name=broker_name,
        )
        varying = ("tran_state_table_offset", "commit_log_offset", "msg_id")
        return RequestTemplate(request, *varying, namespace=self._client.namespace)

    def _collect(self, connection: Connection, pending: dict[int, int], deadline: Deadline) -> None:
        while pending:
            try:
                answers = connection.wait_some(pending, deadline)
            except RocketMQError as error:
                connection.abandon(*pending)
                self._lost(pending.values(), error)
                return
            for opaque, response in answers:
                row = pending.pop(opaque)
                if _is_gone(response):
                    self.gone.append(row)
                    continue
                try:
                    _require(response)
                except SendRefusedError as error:
                    self._lost((row,), error)
                except RocketMQError as error:
                    self._record_error(error)
                else:
                    self.done.append(row)

    def _record_error(self, error: RocketMQError) -> None:
        if self.error is None or (self.error.retriable and not error.retriable):
            self.error = error

    def _lost(self, rows: Iterable[int], error: RocketMQError) -> None:
        self.lost += rows
        self._record_error(error)


def _rounds(halves: pa.Table, rows: Places, *, in_order: bool) -> Iterator[Places]:
    """Split rows into groups of concurrent requests: a limit per broker, or one per queue if ordered."""
    names = ["topic", "brokerName", "queueId"] if in_order else ["brokerName"]
    keys = np.zeros(len(rows), np.int64)
    for name in names:
        codes = halves[name].combine_chunks().dictionary_encode()
        keys = keys * (len(codes.dictionary) + 1) + codes.indices.to_numpy()[rows]
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.searchsorted(ordered, ordered, side="left")
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.arange(len(rows)) - first
    number = rank // (1 if in_order else _IN_FLIGHT)
    by_round = np.argsort(number, kind="stable")
    for batch in np.split(by_round, np.flatnonzero(np.diff(number[by_round])) + 1):
        yield rows[batch]


def _require(response: Response) -> None:
    if response.code == ResponseCode.SLAVE_NOT_AVAILABLE:
        raise ServiceNotAvailableError(
            "the broker is not the master any more",
            code=response.code,
            remark=response.remark,
            addr=response.addr,
        )
    if response.code == ResponseCode.SYSTEM_ERROR:
        raise SendRefusedError(
            "the broker did not end a half message, or failed after it did",
            code=response.code,
            remark=response.remark,
            addr=response.addr,
        )
    response.require()


def _is_gone(response: Response) -> bool:
    remark = (response.remark or "").lower()
    return response.code == ResponseCode.SYSTEM_ERROR and any(part in remark for part in _GONE)
