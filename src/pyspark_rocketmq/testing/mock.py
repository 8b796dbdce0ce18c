"""A RocketMQ without Java: name server and brokers in this process, fast to start, with fault injection."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import (
    MASTER_ID,
    BrokerData,
)
from pyspark_rocketmq.remoting.acl import Credentials, sign
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.testing.data import MockData
from pyspark_rocketmq.testing.faults import Fault, FaultPlan, Injection, Refuse
from pyspark_rocketmq.testing.handlers.admin_requests import Registry, admin_requests, name_server_requests
from pyspark_rocketmq.testing.handlers.execution import Refused, execute
from pyspark_rocketmq.testing.handlers.group_requests import group_requests
from pyspark_rocketmq.testing.handlers.requests import Replica, broker_requests, broker_settings
from pyspark_rocketmq.testing.log import PullLimits
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

    A context manager. All data is in memory and is lost at the end. One behavior suite runs on both this mock
    and RocketMQ 5.5.0 to keep their responses equal. Features that are not mocked (SQL92 filters, POP) are
    rejected, producers are never asked for the state of a transaction, and delayed messages are available
    immediately. Safe for use by many threads and processes.

    Parameters
    ----------
    topics : mapping of str to int, optional
        The initial topics, with their number of queues per broker.
    brokers : sequence of str
        The brokers' names.
    slaves : int
        Slaves per broker. They have the same messages.
    slave_readable : bool
        ``slaveReadEnable``: if False, slaves reject pulls.
    limits : PullLimits
        The limits of one pull response.
    credentials : Credentials, optional
        Requests to brokers must be signed with these.
    tls : ssl.SSLContext, optional
        Serve TLS.
    clock : Clock
        Gives the store time of messages.

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
        """The number of received requests by code."""
        self._registry = Registry(CLUSTER_NAME, stores=self._stores, static_topics=self._static_topics)
        self._replicas = {
            (name, broker_id): Replica(
                store, broker_id, clock.now_ms, readable=slave_readable or broker_id == MASTER_ID
            )
            for name, store in self._stores.items()
            for broker_id in range(slaves + 1)
        }
        plain = {**broker_requests(), **admin_requests(), **group_requests()}
        self._operations = {**plain, **static_requests(plain, self._static_topics, self._master)}
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
                resources.callback(server.close)
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

    # --- faults of the network and of responses ---

    def inject(
        self,
        fault: Fault,
        *,
        on: int | Collection[int] | None = None,
        times: int | None = 1,
        after: int = 0,
        broker: str | None = None,
    ) -> Injection:
        """Inject a fault.

        Parameters
        ----------
        fault : Fault
        on : int or collection of int, optional
            Request codes. Default: every request.
        times : int or None
            How often the fault happens. None: until `heal`.
        after : int
            The number of such requests that succeed first.
        broker : str, optional
            Only on this broker.

        Returns
        -------
        Injection
            Its ``hits`` count how often the fault has happened.
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
        """Reject requests with a response code, see `inject`."""
        return self.inject(Refuse(code, remark), on=on, times=times, broker=broker)

    def heal(self) -> None:
        """Remove all injected faults. Faults of the data stay."""
        self._faults.heal()

    def disconnect(self, broker: str | None = None) -> None:
        """Close the connections to a broker (including its slaves), or to all servers."""
        for server in self._servers_of(broker):
            server.hang_up()
        if broker is None:
            self._name_server.hang_up()

    # --- faults of servers ---

    def stop_broker(self, broker: str, broker_id: int = MASTER_ID, *, unregister: bool = True) -> None:
        """End a server of a broker as a crash does. By default it is removed from the route."""
        self._servers[broker, broker_id].stop()
        if broker_id == MASTER_ID:
            with self._lock:
                self._stores[broker].members.clear()
                self._stores[broker].locks.clear()
        if unregister:
            self._announce(broker)

    def start_broker(self, broker: str, broker_id: int = MASTER_ID) -> None:
        """Restart it at its old address, with its messages, and register it."""
        self._servers[broker, broker_id].start()
        self._announce(broker)

    def unregister(self, broker: str) -> None:
        """Remove a broker from every route. Its servers continue to run."""
        with self._lock:
            self._registry.brokers.pop(broker, None)

    def register(self, broker: str) -> None:
        """Add a broker to the routes again."""
        self._announce(broker)

    def advertise(self, broker: str, addr: str, broker_id: int = MASTER_ID) -> None:
        """Advertise another address of a broker to clients, such as a proxy's."""
        with self._lock:
            data = self._registry.brokers[broker]
            self._registry.brokers[broker] = replace(data, addresses={**data.addresses, broker_id: addr})

    def stop_name_server(self) -> None:
        """Stop the name server. Brokers continue to run."""
        self._name_server.stop()

    def start_name_server(self) -> None:
        """Restart the name server at its old address."""
        self._name_server.start()

    def lag(self, broker: str, messages: int, broker_id: int = 1) -> None:
        """Make a slave lack the newest messages of each queue."""
        with self._lock:
            self._replicas[broker, broker_id].lag = messages

    # --- inside ---

    def _servers_of(self, broker: str | None) -> list[Server]:
        return [server for (name, _), server in self._servers.items() if broker in (None, name)]

    def _master(self, broker: str) -> Replica:
        """Return a broker's master for another broker. It is unreachable while it is down."""
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
        with self._lock:
            return execute(frame, operation)


class MockBroker(MockCluster):
    """A `MockCluster` of one broker.

    Parameters
    ----------
    topics : mapping of str to int, optional
    name : str
    slaves, slave_readable, limits, credentials, tls, clock
        As in `MockCluster`.

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
