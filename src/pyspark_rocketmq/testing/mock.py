"""A RocketMQ without Java: name server and brokers in this process, up in milliseconds, faults on order."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.errors import OptionError, RemoteProtocolError
from pyspark_rocketmq.model import (
    MASTER_ID,
    BrokerData,
)
from pyspark_rocketmq.remoting.acl import Credentials, sign
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.testing.admin_requests import Registry, admin_requests, name_server_requests
from pyspark_rocketmq.testing.data import MockData
from pyspark_rocketmq.testing.faults import Fault, FaultPlan, Injection, Refuse
from pyspark_rocketmq.testing.group_requests import group_requests
from pyspark_rocketmq.testing.log import PullLimits
from pyspark_rocketmq.testing.requests import Refused, Replica, broker_requests, broker_settings
from pyspark_rocketmq.testing.static_topics import static_requests
from pyspark_rocketmq.testing.store import BrokerStore
from pyspark_rocketmq.testing.wire import Loop, Reply, Server

__all__ = ["MockBroker", "MockCluster"]

CLUSTER_NAME: Final = "MockCluster"

_STORING: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.END_TRANSACTION,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    }
)


class MockCluster(MockData):
    """A name server and brokers on loopback that speak RocketMQ's protocol, for tests.

    A context manager. Everything is in memory and gone at the end. Answers are held equal to those of
    RocketMQ 5.4.0 by one behaviour suite that runs on both; what is not mocked (SQL92 filters, POP) is
    refused, nobody is asked what became of a transaction, and delayed messages are there at once. Safe to be
    used by many threads and processes.

    Parameters
    ----------
    topics : mapping of str to int, optional
        Queues a broker of the topics that are there from the start.
    brokers : sequence of str
        The brokers' names.
    slaves : int
        Slaves of each broker; they have the same messages.
    slave_readable : bool
        ``slaveReadEnable``: without it slaves refuse pulls.
    limits : PullLimits
        What one answer to a pull may hold.
    credentials : Credentials, optional
        Requests to brokers must be signed with these.
    tls : ssl.SSLContext, optional
        Speak TLS.
    clock : Clock
        Whose time messages are stored with.

    Examples
    --------
    >>> from pyspark_rocketmq.remoting.codes import RequestCode
    >>> with MockCluster({"orders": 4}, brokers=("broker-a", "broker-b")) as mq:  # doctest: +SKIP
    ...     mq.fail(RequestCode.PULL_MESSAGE, code=2, times=3)
    ...     spark.read.format("rocketmq").option("nameServer", mq.name_server)
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        brokers: Collection[str] = ("broker-a",),
        slaves: int = 0,
        slave_readable: bool = False,
        limits: PullLimits = PullLimits(),  # noqa: B008 - frozen
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not brokers or slaves < 0:
            raise OptionError("a mock cluster has at least one broker, and no or more slaves")
        self._loop = Loop()
        super().__init__(
            {
                name: BrokerStore(name, settings=broker_settings(name, CLUSTER_NAME, limits))
                for name in brokers
            },
            clock=clock,
            announce_news=self._loop.announce_news,
        )
        self._credentials = credentials
        self._faults = FaultPlan()
        self.asked: Counter[int] = Counter()
        """How many requests of each code have come in."""
        self._registry = Registry(CLUSTER_NAME, stores=self._stores, static_topics=self._static_topics)
        self._replicas = {
            (name, broker_id): Replica(
                store, broker_id, clock.now_ms, readable=slave_readable or broker_id == MASTER_ID
            )
            for name, store in self._stores.items()
            for broker_id in range(slaves + 1)
        }
        plain = broker_requests()
        static = static_requests(plain, self._static_topics, self._master)
        self._operations = {**plain, **static, **admin_requests(), **group_requests()}
        self._name_server = Server(self._loop, self._serve_name_server(), self._fault_for(None), tls=tls)
        self._servers = {
            key: Server(self._loop, self._serve_broker(replica), self._fault_for(key[0]), tls=tls)
            for key, replica in self._replicas.items()
        }
        self._resources = ExitStack()
        for topic, queues in (topics or {}).items():
            self.create_topic(topic, queues)

    # --- life ---

    def __enter__(self) -> Self:
        with ExitStack() as resources:
            self._loop.start()
            resources.callback(self._loop.stop)
            for server in (self._name_server, *self._servers.values()):
                server.start()
                resources.callback(server.stop)
            for name, store in self._stores.items():
                store.store_host = self._servers[name, MASTER_ID].addr
                self.register(name)
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    @property
    def name_server(self) -> str:
        """The name server's ``host:port``."""
        return self._name_server.addr

    def address(self, broker: str, broker_id: int = MASTER_ID) -> str:
        """Return the ``host:port`` of a broker's master or slave."""
        return self._servers[broker, broker_id].addr

    # --- faults of the network and of answers ---

    def inject(
        self,
        fault: Fault,
        *,
        on: int | Collection[int] | None = None,
        times: int | None = 1,
        after: int = 0,
        broker: str | None = None,
    ) -> Injection:
        """Have something go wrong.

        Parameters
        ----------
        fault : Fault
        on : int or collection of int, optional
            Request codes; every request if absent.
        times : int or None
            How often; None for until `heal`.
        after : int
            How many such requests go well first.
        broker : str, optional
            Only at this broker.

        Returns
        -------
        Injection
            Its ``hits`` tell how often it has happened.
        """
        return self._faults.inject(fault, on=on, times=times, after=after, broker=broker)

    def fail(
        self,
        on: int | Collection[int] | None,
        *,
        code: int,
        times: int | None = 1,
        remark: str | None = None,
        broker: str | None = None,
    ) -> Injection:
        """Have requests refused with a response code; see `inject`."""
        return self.inject(Refuse(code, remark), on=on, times=times, broker=broker)

    def heal(self) -> None:
        """Let everything go well from now on; what the data has suffered stays."""
        self._faults.heal()

    def disconnect(self, broker: str | None = None) -> None:
        """Close the connections to a broker (its slaves included), or to all servers."""
        for server in self._servers_of(broker):
            server.hang_up()
        if broker is None:
            self._name_server.hang_up()

    # --- faults of servers ---

    def stop_broker(self, broker: str, broker_id: int = MASTER_ID, *, unregister: bool = True) -> None:
        """End a server of a broker as a crash does; it leaves the route unless told otherwise."""
        self._servers[broker, broker_id].stop()
        with self._lock:
            self._stores[broker].members.clear()
        if unregister:
            self._announce(broker)

    def start_broker(self, broker: str, broker_id: int = MASTER_ID) -> None:
        """Start it again at its old address, with its messages, and register it."""
        self._servers[broker, broker_id].start()
        self._announce(broker)

    def unregister(self, broker: str) -> None:
        """Take a broker out of every route; its servers go on."""
        with self._lock:
            self._registry.brokers.pop(broker, None)

    def register(self, broker: str) -> None:
        """Bring a broker back into the routes."""
        self._announce(broker)

    def advertise(self, broker: str, addr: str, broker_id: int = MASTER_ID) -> None:
        """Tell clients another address of a broker, a proxy's for example."""
        with self._lock:
            data = self._registry.brokers[broker]
            self._registry.brokers[broker] = replace(data, addresses={**data.addresses, broker_id: addr})

    def stop_name_server(self) -> None:
        """End the name server; brokers serve on."""
        self._name_server.stop()

    def start_name_server(self) -> None:
        """Start it again at its old address."""
        self._name_server.start()

    def lag(self, broker: str, messages: int, broker_id: int = 1) -> None:
        """Let a slave miss the newest messages of each queue."""
        with self._lock:
            self._replicas[broker, broker_id].lag = messages

    # --- inside ---

    def _servers_of(self, broker: str | None) -> list[Server]:
        return [server for (name, _), server in self._servers.items() if broker in (None, name)]

    def _master(self, broker: str) -> Replica:
        """Return a broker's master for another broker, which cannot reach it while it is away."""
        if not self._servers[broker, MASTER_ID].running:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"cannot find addr for broker {broker}")
        return self._replicas[broker, MASTER_ID]

    def _announce(self, broker: str) -> None:
        addresses = {
            broker_id: server.addr
            for (name, broker_id), server in self._servers.items()
            if name == broker and server.running
        }
        with self._lock:
            if addresses:
                self._registry.brokers[broker] = BrokerData(broker, CLUSTER_NAME, addresses)
            else:
                self._registry.brokers.pop(broker, None)

    def _fault_for(self, broker: str | None) -> Callable[[int], Fault | None]:
        def take(code: int) -> Fault | None:
            with self._lock:
                self.asked[code] += 1
            return self._faults.take(code, broker)

        return take

    def _serve_name_server(self) -> Callable[[Frame, int | None], Reply]:
        operations = name_server_requests(self._registry)

        def serve(frame: Frame, most: int | None) -> Reply:
            del most
            operation = operations.get(frame.command.code)
            return self._execute(frame, operation)

        return serve

    def _serve_broker(self, replica: Replica) -> Callable[[Frame, int | None], Reply]:
        def serve(frame: Frame, most: int | None) -> Reply:
            operation = self._operations.get(frame.command.code)
            if self._credentials is not None and not _is_signed(frame, self._credentials):
                return Reply(ResponseCode.NO_PERMISSION, remark="check signature failed.")
            limits = replica.limits if most is None else replace(replica.limits, messages=most)
            reply = self._execute(frame, operation and (lambda it: operation(replica, it, limits)))
            if frame.command.code in _STORING:
                self._announce_news()
            return reply

        return serve

    def _execute(self, frame: Frame, operation: Callable[[Frame], Reply] | None) -> Reply:
        if operation is None:
            return Reply(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f" request type {frame.command.code} not supported",
            )
        try:
            with self._lock:
                return operation(frame)
        except Refused as refusal:
            return Reply(refusal.code, remark=refusal.remark)
        except RemoteProtocolError as error:  # a request that lacks something
            return Reply(ResponseCode.SYSTEM_ERROR, remark=str(error))


class MockBroker(MockCluster):
    """A `MockCluster` of one broker.

    Parameters
    ----------
    topics : mapping of str to int, optional
    name : str
    slaves, slave_readable, limits, credentials, tls, clock
        As of `MockCluster`.

    Examples
    --------
    >>> with MockBroker({"orders": 4}) as mq, Client(mq.name_server) as client:  # doctest: +SKIP
    ...     mq.send(OutgoingMessage("orders", b"42"))
    ...     mq.fail(RequestCode.PULL_MESSAGE, code=ResponseCode.SYSTEM_BUSY, times=3)
    ...     PullConsumer("report", client=client).pull(mq.queue("orders"), "*", 0)
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        name: str = "broker-a",
        slaves: int = 0,
        slave_readable: bool = False,
        limits: PullLimits = PullLimits(),  # noqa: B008 - frozen
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(
            topics,
            brokers=(name,),
            slaves=slaves,
            slave_readable=slave_readable,
            limits=limits,
            credentials=credentials,
            tls=tls,
            clock=clock,
        )


def _is_signed(frame: Frame, credentials: Credentials) -> bool:
    fields = dict(frame.command.fields)
    fields.pop("AccessKey", None)
    fields.pop("SecurityToken", None)
    signature = fields.pop("Signature", None)
    return signature == sign(fields, frame.body, credentials)["Signature"]
