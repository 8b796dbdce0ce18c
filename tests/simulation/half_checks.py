"""Brokers that ask what became of half messages, and the resolver that answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.cluster import Cluster
from tests.simulation.host import SimulatedHost
from tests.simulation.network import Session
from tests.simulation.scheduler import Process, SimulatedClock
from tests.simulation.stage import Stage

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.model import MASTER_ID
from pyspark_rocketmq.options import SinkOptions
from pyspark_rocketmq.record.compress import Compression
from pyspark_rocketmq.record.message import encode_message
from pyspark_rocketmq.record.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION,
    PROPERTY_UNIQUE_KEY,
)
from pyspark_rocketmq.remoting.body.shape import read
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.command import FLAG_ONE_WAY, Command
from pyspark_rocketmq.remoting.frame import Frame, encode_frame
from pyspark_rocketmq.remoting.header import CheckTransactionStateRequest, EndTransactionRequest
from pyspark_rocketmq.spark.write.transaction_checker import TransactionChecks
from pyspark_rocketmq.spark.write.transaction_log import TransactionLog, TransactionName
from pyspark_rocketmq.testing.store import BrokerStore, HalfMessage
from pyspark_rocketmq.testing.wire import Reply

__all__ = ["HalfChecks", "Resolver"]

_TIMEOUT_S: Final = 6.0
_MEMBER_S: Final = 120.0
_MOST_CHECKS: Final = 15


@dataclass(slots=True)
class _Open:
    """A half message without an end, or its newest copy."""

    half: HalfMessage
    stored_s: float
    checks: int = 0


@dataclass(slots=True)
class _Asking:
    """What one broker knows: its half messages, by their offsets in its log, and who may be asked."""

    open: dict[int, _Open] = field(default_factory=dict)
    members: dict[str, dict[Session, float]] = field(default_factory=dict)


class HalfChecks:
    """Asks about half messages, again and again.

    Facts (TransactionalMessageServiceImpl.check, AbstractTransactionalMessageCheckListener, ProducerManager;
    RocketMQ 5.4): in each interval, a master looks at its half messages that are older than 6 s and have no
    end. It stores a copy of each, which takes its place, and sends a check with the copy's offsets to one
    connection of the producer group that was heard of in the last 120 s. After 15 checks it gives up.

    Parameters
    ----------
    stage : Stage
    cluster : Cluster
    interval_s : float
    chance : random.Random
    is_finished : callable
        Whether the log says that a batch is finished.
    """

    def __init__(
        self,
        stage: Stage,
        cluster: Cluster,
        interval_s: float,
        chance: random.Random,
        *,
        is_finished: Callable[[TransactionName], bool],
    ) -> None:
        self._stage = stage
        self._cluster = cluster
        self._interval_s = interval_s
        self._chance = chance
        self._is_finished = is_finished
        self._brokers: dict[str, _Asking] = {}
        cluster.watchers.append(self._executed)
        cluster.on_half = self._stored
        stage.scheduler.after(interval_s, self._look)

    @property
    def open(self) -> int:
        """How many half messages have no end."""
        return sum(len(each.open) for each in self._brokers.values())

    def _at(self, broker: str) -> _Asking:
        return self._brokers.setdefault(broker, _Asking())

    def _stored(self, broker: str, commit_log_offset: int, half: HalfMessage) -> None:
        self._at(broker).open[commit_log_offset] = _Open(half, self._stage.scheduler.now)

    def _executed(self, broker: str, session: Session, frame: Frame, reply: Reply) -> None:
        fields: Mapping[str, str] = frame.command.fields
        match frame.command.code:
            case RequestCode.HEART_BEAT:
                for data in read(frame.body, "heartbeat")["producerDataSet"].elements():
                    members = self._at(broker).members.setdefault(data["groupName"].string(), {})
                    members[session] = self._stage.scheduler.now
            case RequestCode.END_TRANSACTION if not reply.code:
                self._ended(broker, EndTransactionRequest.parse(fields))

    def _ended(self, broker: str, request: EndTransactionRequest) -> None:
        ended = self._at(broker).open.pop(request.commit_log_offset, None)
        if not request.from_transaction_check:
            return
        self._stage.history.did["a resolver rolls a half message back"] += 1
        if ended is None:
            return
        name = TransactionName.parse(ended.half.properties[PROPERTY_TRANSACTION])
        if not self._is_finished(name):
            body = ended.half.body.rstrip()
            self._stage.history.rolled_back.append(f"{body!r} of {name}, which is not finished")

    def _look(self) -> None:
        for broker, asking in self._brokers.items():
            if self._cluster.servers[broker, MASTER_ID].running:
                store = self._cluster.stores[broker]
                for at, each in tuple(asking.open.items()):
                    if self._stage.scheduler.now - each.stored_s >= _TIMEOUT_S or each.checks:
                        del asking.open[at]
                        if store.half(at) is not None and each.checks < _MOST_CHECKS:
                            self._check(store, asking, each)
        self._stage.scheduler.after(self._interval_s, self._look)

    def _check(self, store: BrokerStore, asking: _Asking, each: _Open) -> None:
        copy = store.append_half(each.half)
        at = int(copy.msg_id[-16:], 16)
        asking.open[at].checks = each.checks + 1
        now_s = self._stage.scheduler.now
        members = asking.members.get(each.half.properties[PROPERTY_PRODUCER_GROUP], {})
        known = [
            session for session, heard_s in members.items() if session.open and now_s - heard_s < _MEMBER_S
        ]
        if not known:
            return
        self._stage.history.did["a broker asks about a half message"] += 1
        half = each.half
        request = CheckTransactionStateRequest(
            topic="RMQ_SYS_TRANS_HALF_TOPIC",
            tran_state_table_offset=copy.offset,
            commit_log_offset=at,
            msg_id=half.properties[PROPERTY_UNIQUE_KEY],
            transaction_id=half.properties[PROPERTY_UNIQUE_KEY],
            broker_name=store.name,
        )
        record = encode_message(
            half.body,
            half.properties,
            topic=half.topic,
            queue_id=half.queue_id,
            queue_offset=copy.offset,
            commit_log_offset=at,
            compression=Compression.NONE,
            flag=half.flag,
            sys_flag=half.sys_flag,
            born_timestamp=half.born_timestamp,
        )
        command = Command(code=request.CODE, opaque=0, flag=FLAG_ONE_WAY, fields=request.fields())
        self._chance.choice(known).send_down(bytes(encode_frame(command, record)))


class Resolver:
    """The resolver of a sink: a process that is started again with each driver.

    Parameters
    ----------
    stage : Stage
    options : SinkOptions
    chance : random.Random
    """

    def __init__(self, stage: Stage, options: SinkOptions, chance: random.Random) -> None:
        self._stage = stage
        self._options = options
        self._chance = chance
        self._process = Process("resolver", listens=True)

    def start(self) -> None:
        """Start it, in place of the former one."""
        assert self._options.transactions is not None
        assert self._options.topic is not None
        self._stage.scheduler.kill(self._process)
        self._stage.network.hang_up(self._process)
        self._process = Process("resolver", listens=True)
        host = SimulatedHost(self._stage.network, self._process)
        client = Client(
            self._options.client,
            clock=SimulatedClock(self._stage.scheduler, self._process),
            random=random.Random(self._chance.random()),
            host=host,
        )
        checks = TransactionChecks(
            client,
            topic=self._options.topic,
            group=self._options.transactions.group,
            log=TransactionLog(self._options.transactions.folder, host=host),
        )
        host.start(checks.run, name="transaction-resolver")
