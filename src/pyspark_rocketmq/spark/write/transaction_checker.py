"""Answers brokers' checks of half messages: the driver's part of transactional writes."""

# Facts (AbstractTransactionalMessageCheckListener, ProducerManager; 4.9.7 and 5.4.0)
# - A broker sends a check to one connection of the producer group whose heartbeat named it in the last 120 s.
# - The request is one-way. Its offsets are those of the newest copy of the half message, and only they end
#   the checks. Its body is the record, with its own topic and properties.

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.groups.membership import create_client_id
from pyspark_rocketmq.client.net.host import Outcome
from pyspark_rocketmq.client.send.half_messages import Ending
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.options import Guarantee, SinkOptions, parse_options
from pyspark_rocketmq.record.message import decode_messages
from pyspark_rocketmq.record.properties import PROPERTY_TRANSACTION
from pyspark_rocketmq.remoting.body import encode_heartbeat
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.header import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    HeartbeatRequest,
)
from pyspark_rocketmq.spark.write.transaction_log import TransactionLog, TransactionName

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from pyspark_rocketmq.client.net.connection import Connection

__all__ = ["TransactionChecks", "TransactionResolver", "TransactionalQuery", "start_transactional"]

_LOG: Final = logging.getLogger(__name__)

_BEAT_S: Final = 30.0
_BEAT_AGAIN_S: Final = 1.0
_POLL_S: Final = 0.2
_STOP_S: Final = 10.0


class TransactionResolver:
    """Rolls back half messages of failed tasks and killed drivers when their broker checks them.

    The resolver is optional; it only cleans up. Half messages without an answer are never visible, and their
    broker drops them after 15 checks (7.5 minutes with its defaults). A check of a batch that is not finished
    gets no answer: the query, or its next run, commits it.

    A context manager with a separate thread, which ends with `close`, or with the process.

    Parameters
    ----------
    **options
        The options of the write: ``nameServer``, ``topic``, ``checkpointLocation`` or ``transactionLog``, and
        those of the connection.

    Raises
    ------
    OptionError
        An option is invalid, the write would not be transactional, or it has no constant topic.
    """

    def __init__(self, **options: Any) -> None:
        given = parse_options(SinkOptions, options)
        if given.transactions is None:
            raise OptionError(
                "there is nothing to resolve without deliveryGuarantee=transactional",
                option="deliveryGuarantee",
            )
        if given.topic is None:
            raise OptionError("the brokers that may ask are found by the option topic", option="topic")
        self._client = Client(given.client)
        log = TransactionLog(given.transactions.folder)
        self._checks = TransactionChecks(
            self._client, topic=given.topic, group=given.transactions.group, log=log
        )
        self._ended: Outcome[None] = Outcome(self._client.host)
        self._client.host.start(self._run, name="transaction-resolver")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def asked(self) -> int:
        """Number of checks of half messages by brokers."""
        return self._checks.asked

    @property
    def rolled_back(self) -> int:
        """Number of half messages that were rolled back."""
        return self._checks.rolled_back

    def close(self) -> None:
        """Stop the thread and close the connections."""
        self._checks.stop()
        with contextlib.suppress(TimeoutError):
            self._ended.get(_STOP_S)
        self._client.close()

    def _run(self) -> None:
        try:
            self._checks.run()
        finally:
            self._ended.settle(None)


class TransactionChecks:
    """The work of a `TransactionResolver`'s thread.

    Parameters
    ----------
    client : Client
        Not shared with other code: brokers send checks on its connections.
    topic, group : str
        The topic that is written, and the producer group of its half messages.
    log : TransactionLog
        Tells which batches are finished.
    """

    def __init__(self, client: Client, *, topic: str, group: str, log: TransactionLog) -> None:
        self._client = client
        self._topic = topic
        self._group = group
        self._log = log
        self._checks: deque[tuple[Connection, Command, bytes]] = deque()
        number = int.from_bytes(client.host.random_bytes(8), "big")
        self._heartbeat = encode_heartbeat(
            create_client_id(number, client.host), producer_groups=(client.namespace.qualify(group),)
        )
        self._beaten: dict[str, tuple[Connection, float]] = {}
        self.asked = 0
        self.rolled_back = 0
        self._turn = client.host.condition()
        self._stopping = False

    def stop(self) -> None:
        """Have `run` return."""
        with self._turn:
            self._stopping = True
            self._turn.notify_all()

    def run(self) -> None:
        """Answer checks until `stop`."""
        while not self._stopping:
            try:
                self._beat()
                self._listen()
                self._answer_all()
            except RocketMQError as error:
                _LOG.info("transactions wait to be resolved: %s", error)
                self._pause(_BEAT_AGAIN_S)
            except Exception:  # noqa: BLE001 - the thread's outermost frame
                _LOG.exception("transactions wait to be resolved")
                self._pause(_BEAT_S)

    def _pause(self, seconds: float) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._stopping, seconds)

    def _beat(self) -> None:
        """Register with the group at every master: brokers check only members."""
        now = self._client.clock.monotonic()
        for data in self._client.served_route(self._topic).brokers:
            if (addr := data.master) is None:
                continue
            known, at = self._beaten.get(addr, (None, 0.0))
            if known is not None and known.alive and now - at < _BEAT_S:
                continue
            with self._leaving_out(addr):
                connection = self._client.connection(addr)
                connection.on_request = lambda command, body, c=connection: self._take(c, command, body)
                deadline = self._client.deadline(self._client.request_timeout_ms)
                connection.call(HeartbeatRequest(), self._heartbeat, deadline=deadline).require()
                self._beaten[addr] = (connection, now)

    @contextlib.contextmanager
    def _leaving_out(self, addr: str) -> Iterator[None]:
        try:
            yield
        except RocketMQError as error:  # the others may send checks meanwhile
            self._beaten.pop(addr, None)
            _LOG.info("a broker cannot ask about transactions now: %s", error)

    def _listen(self) -> None:
        # A poll of one that has ended returns at once: its broker may be in no route for a long time.
        connections = [connection for connection, _ in self._beaten.values() if connection.alive]
        if not connections:
            self._pause(_BEAT_AGAIN_S)
        for connection in connections:
            connection.poll(_POLL_S / len(connections))

    def _take(self, connection: Connection, command: Command, body: memoryview) -> None:
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._checks.append((connection, command, bytes(body)))

    def _answer_all(self) -> None:
        while self._checks and not self._stopping:
            connection, command, body = self._checks.popleft()
            check = CheckTransactionStateRequest.parse(command.fields)
            self.asked += 1
            for message in decode_messages(body, broker_name=check.broker_name or ""):
                if self._is_over(message.properties.get(PROPERTY_TRANSACTION)):
                    self._roll_back(connection, check, message.topic)

    def _is_over(self, text: str | None) -> bool:
        """Whether a batch is finished, so that its remaining half messages are copies, or of failed tasks."""
        try:
            name = TransactionName.parse(text or "")
        except ValueError:
            return False
        done = self._log.newest_done(name.owner)
        return done is not None and name.number <= done

    def _roll_back(self, connection: Connection, check: CheckTransactionStateRequest, topic: str) -> None:
        request = EndTransactionRequest(
            topic=topic,
            producer_group=self._group,
            tran_state_table_offset=check.tran_state_table_offset,
            commit_log_offset=check.commit_log_offset,
            commit_or_rollback=int(Ending.ROLLBACK),
            from_transaction_check=True,
            msg_id=check.msg_id or "",
            transaction_id=check.transaction_id,
            broker_name=check.broker_name or "",
        )
        connection.post(request)
        self.rolled_back += 1


class TransactionalQuery:
    """A running query and the resolver of its transactions. Stopping it stops both.

    Attributes
    ----------
    query : StreamingQuery
    resolver : TransactionResolver
    """

    def __init__(self, query: StreamingQuery, resolver: TransactionResolver) -> None:
        self.query = query
        self.resolver = resolver

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the query, then the resolver."""
        try:
            self.query.stop()
        finally:
            self.resolver.close()


def start_transactional(writer: DataStreamWriter, **options: Any) -> TransactionalQuery:
    """Start a query that writes with transactions, and answer its brokers' checks while it runs.

    Parameters
    ----------
    writer : DataStreamWriter
        The writer, with its trigger and name.
    **options
        The options of the write. ``deliveryGuarantee`` is ``transactional``.

    Returns
    -------
    TransactionalQuery
        A context manager; ``query`` is Spark's query.

    Raises
    ------
    OptionError
        As `TransactionResolver`.

    Examples
    --------
    >>> with start_transactional(  # doctest: +SKIP
    ...     orders.writeStream, nameServer="127.0.0.1:9876", topic="orders", checkpointLocation=folder
    ... ) as running:
    ...     running.query.awaitTermination()
    """
    given = {**options, "deliveryGuarantee": Guarantee.TRANSACTIONAL.value}
    resolver = TransactionResolver(**given)
    try:
        query = writer.format("rocketmq").options(**given).start()
    except BaseException:
        resolver.close()
        raise
    return TransactionalQuery(query, resolver)
