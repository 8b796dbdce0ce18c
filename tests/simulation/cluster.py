"""A simulated cluster: name servers that learn from registrations, masters, slaves, and their data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tests.simulation.dead_letters import refusing_requests
from tests.simulation.group_members import GroupMembers
from tests.simulation.history import Place, RecordingStore
from tests.simulation.host import SimulatedHost
from tests.simulation.name_server import NameServer
from tests.simulation.network import Network, Session
from tests.simulation.proxy import WATER_MARK, Proxy
from tests.simulation.scheduler import Process, SimulatedClock
from tests.simulation.servers import Handler, Server, State
from tests.simulation.sql_filters import sql_requests

from pyspark_rocketmq.model import MASTER_ID, BrokerData, MessageQueue, Permission
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.remoting.header.name_server import GetRouteInfoRequest
from pyspark_rocketmq.testing.data import MockData
from pyspark_rocketmq.testing.handlers.admin_requests import Registry, admin_requests, name_server_requests
from pyspark_rocketmq.testing.handlers.execution import Refused, execute
from pyspark_rocketmq.testing.handlers.group_requests import group_requests
from pyspark_rocketmq.testing.handlers.requests import Replica, broker_requests, broker_settings
from pyspark_rocketmq.testing.log import PullLimits
from pyspark_rocketmq.testing.static_topics import Part, static_requests
from pyspark_rocketmq.testing.store import READ_WRITE, BrokerStore, HalfMessage
from pyspark_rocketmq.testing.wire import Reply

__all__ = ["Cluster"]

_CLUSTER: Final = "Simulated"
_REGISTRATION_S: Final = 30.0
_EXPIRY_S: Final = 120.0


@dataclass
class _Replica(Replica):
    """A replica whose index may lag behind its log, and never goes back.

    ``shown`` has the ends of queues that clients may have seen.
    """

    shown: dict[tuple[str, int], int] = field(default_factory=dict)

    def max_offset(self, topic: str, queue_id: int) -> int:
        end = self.store.log(topic, queue_id).max_offset
        return min(end, max(super().max_offset(topic, queue_id), self.shown.get((topic, queue_id), 0)))


class Cluster(MockData):
    """Brokers and name servers in the network of a simulation.

    Facts (RouteInfoManager, BrokerController; RocketMQ 5.4): a broker registers with every name server at its
    start, when a topic changes and every 30 s; name servers do not talk to each other; one that was killed is
    dropped when its connection breaks (within 10 s), one that vanished after 120 s.

    Parameters
    ----------
    network : Network
    brokers : sequence of str
    name_servers : int
    slaves : int
        A broker.
    slave_readable : bool
    proxies : int
        How many proxies are in the clients' way, in place of the name servers.
    limits : PullLimits
    clocks_ms : sequence of int
        How far the brokers' clocks are ahead, one after the other.
    on_append : callable
        Told of every message that a broker stores.
    on_commit : callable
        Told of every offset that a group commits.
    damage : callable
        Returns what becomes of a message's record; None: it stays as it is.
    """

    def __init__(
        self,
        network: Network,
        *,
        brokers: Sequence[str],
        name_servers: int,
        slaves: int,
        slave_readable: bool,
        proxies: int = 0,
        limits: PullLimits,
        clocks_ms: Sequence[int] = (),
        on_append: Callable[[Place, bytes, Mapping[str, str], int], None],
        on_commit: Callable[[str, MessageQueue, int], None],
        damage: Callable[[Place], Callable[[bytes], bytes] | None] = lambda _: None,
    ) -> None:
        self._network = network
        self._on_commit, self._damage = on_commit, damage
        self._limits = limits
        self._on_append = on_append
        self._slave_readable = slave_readable
        self._clocks_ms = clocks_ms or (0,)
        self.ahead_ms: dict[str, int] = {}
        """How far each broker's clock is ahead."""
        machine = Process("brokers")
        super().__init__(
            {},
            clock=SimulatedClock(network.scheduler, machine),
            announce_news=self._tell_suspended,
            host=SimulatedHost(network, machine),
        )
        plain = {**broker_requests(), **admin_requests()}
        static = static_requests(plain, self._static_topics, self._master)
        operations = {**plain, **static, **group_requests()}
        self._operations = operations | sql_requests(operations) | refusing_requests(operations)
        self.replicas: dict[tuple[str, int], _Replica] = {}
        self.servers: dict[tuple[str, int], Server] = {}
        self._lives: dict[tuple[str, int], object] = {}
        self.retired: set[str] = set()
        self.lost_locks: dict[str, float] = {}
        """When a broker last lost the locks of queues."""
        self.happened = Counter[str]()
        self.partial_routes: set[str] = set()
        """Topics of which a client was told a route that lacks queues to write to."""
        self.watchers: list[Callable[[str, Session, Frame, Reply], None]] = []
        """Told of every request that a broker has executed."""
        self.on_half: Callable[[str, int, HalfMessage], None] = lambda *_: None
        """Told of every half message that a broker stores."""
        self.name_servers = [self._new_name_server(number) for number in range(name_servers)]
        self.proxies = [self._new_proxy(number) for number in range(proxies)]
        for name in brokers:
            self.add_broker(name, slaves)

    @property
    def name_server(self) -> str:
        """The list of name servers, as clients are given it."""
        return ";".join(one.addr for one in self.proxies or [one.server for one in self.name_servers])

    @property
    def stores(self) -> Mapping[str, BrokerStore]:
        """The brokers' data."""
        return self._stores

    def is_static(self, topic: str) -> bool:
        """Whether a topic's queues move."""
        return topic in self._static_topics

    def is_compacted(self, topic: str) -> bool:
        """Whether offsets of a topic may have no message."""
        configs = [store.topics[topic] for store in self._stores.values() if topic in store.topics]
        return any(config.attributes.get("cleanup.policy") == "COMPACTION" for config in configs)

    def parts(self, queue: MessageQueue) -> Sequence[Part]:
        """Return the brokers' queues that a queue consists of."""
        return self._parts(queue)

    @property
    def all_servers(self) -> list[Server]:
        """Every server."""
        return [*(one.server for one in self.name_servers), *self.servers.values(), *self.proxies]

    def start(self) -> None:
        """Start everything."""
        for one in self.name_servers:
            one.server.start()
        for proxy in self.proxies:
            proxy.start()
        for name, broker_id in self.servers:
            self.start_broker(name, broker_id)

    # --- proxies ---

    def _new_proxy(self, number: int) -> Server:
        addr = f"10.2.0.{number + 1}:8080"
        proxy = Proxy(
            addr,
            name_servers=lambda: [one.server for one in self.name_servers if one.server.running],
            brokers=self._behind_proxy,
        )
        return Server(self._network, addr, f"proxy-{number}", proxy.handle, water_mark=WATER_MARK)

    def _behind_proxy(self, name: str) -> Handler | None:
        master = self.servers.get((name, MASTER_ID))
        return master.handle if master is not None and master.running else None

    # --- name servers ---

    def _new_name_server(self, number: int) -> NameServer:
        registry = Registry(_CLUSTER, stores={}, static_topics=self._static_topics)
        operations = name_server_requests(registry)

        def handle(frame: Frame, most: int | None) -> Reply:
            del most
            if frame.command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                self._look_at_route(
                    self.name_servers[number], GetRouteInfoRequest.parse(frame.command.fields).topic
                )
            return execute(frame, operations.get(frame.command.code))

        server = Server(self._network, f"10.0.0.{number + 1}:9876", f"name-server-{number}", handle)
        return NameServer(server, registry, {})

    def _look_at_route(self, asked: NameServer, topic: str) -> None:
        for name in self.homes(topic):
            known, config = asked.registry.brokers.get(name), self._stores[name].topics[topic]
            led = known is not None and known.master is not None
            if not (led and asked.has(name, config) and Permission.WRITE in config.perm):
                self.partial_routes.add(topic)

    def registered(self, topic: str) -> frozenset[str]:
        """Return the brokers whose masters and queues of a topic every name server knows."""
        known = [
            {
                name
                for name, data in one.registry.brokers.items()
                if data.master is not None and topic in one.registry.stores[name].topics
            }
            for one in self.name_servers
            if one.server.running
        ]
        whole = len(known) == len(self.name_servers)
        return frozenset(set.intersection(*known)) if known and whole else frozenset()

    def has_heard(self, topic: str, broker: str, seconds: float) -> bool:
        """Whether every name server has had a topic's present settings at a broker for some time."""
        since_s, config = self._network.scheduler.now - seconds, self._stores[broker].topics[topic]
        return all(one.knows(broker, config, since_s) for one in self.name_servers)

    def homes(self, topic: str) -> frozenset[str]:
        """Return the brokers that have a topic."""
        return frozenset(name for name, store in self._stores.items() if topic in store.topics)

    def showing(self, topic: str) -> frozenset[str]:
        """Return those of `registered` that show every message of a topic."""
        late = {name for (name, number), each in self.replicas.items() if number == MASTER_ID and each.lag}
        return self.registered(topic) - late

    def restart_name_server(self, number: int, away_s: float, state: State) -> None:
        """Stop a name server for some time; after a kill it comes back knowing nothing."""
        self.name_servers[number].server.stop(state)
        self._network.scheduler.after(away_s, partial(self._back, number))

    def _back(self, number: int) -> None:
        one = self.name_servers[number]
        if one.server.state not in (State.RUNS, State.PAUSED):
            one.forget()
        one.server.start()

    def _register(self, name: str, broker_id: int) -> None:
        """Tell every name server that is up of a broker; each hears of it at another moment."""
        server = self.servers[name, broker_id]
        if not server.running:
            return
        topics = dict(self._stores[name].topics)
        for one in self.name_servers:
            delay_s = self._network.delay_s(one.server)
            self._network.scheduler.after(
                delay_s, partial(self._registered, one, name, broker_id, server.addr, topics)
            )

    def _registered(
        self, one: NameServer, name: str, broker_id: int, addr: str, topics: Mapping[str, object]
    ) -> None:
        if not one.server.running:
            return
        known = one.registry.brokers.get(name)
        addresses = {**(known.addresses if known is not None else {}), broker_id: addr}
        one.registry.brokers[name] = BrokerData(name, _CLUSTER, addresses)
        # A snapshot: a name server knows the topics of the last registration.
        stores = dict(one.registry.stores)
        if name not in stores or stores[name].topics != topics:
            one.changed[name] = self._network.scheduler.now
        stores[name] = BrokerStore(name, topics=dict(topics))  # type: ignore[arg-type]
        one.registry.stores = stores
        one.seen[name, broker_id] = self._network.scheduler.now

    def _keep_registered(self, name: str, broker_id: int, life: object) -> None:
        """Register now and every 30 s, for as long as this life of the server lasts."""
        server = self.servers[name, broker_id]
        if self._lives.get((name, broker_id)) is not life:
            return
        self._register(name, broker_id)
        self._expire_registrations()
        if server.state is not State.KILLED:
            self._network.scheduler.after(
                _REGISTRATION_S, partial(self._keep_registered, name, broker_id, life)
            )

    def _expire_registrations(self) -> None:
        now = self._network.scheduler.now
        for one in self.name_servers:
            for (name, broker_id), seen in tuple(one.seen.items()):
                if now - seen > _EXPIRY_S:
                    self._unregistered(one, name, broker_id)

    def _unregistered(self, one: NameServer, name: str, broker_id: int) -> None:
        one.seen.pop((name, broker_id), None)
        known = one.registry.brokers.get(name)
        if known is None or not one.server.running:
            return
        addresses = {number: addr for number, addr in known.addresses.items() if number != broker_id}
        if addresses:
            one.registry.brokers[name] = replace(known, addresses=addresses)
        else:
            del one.registry.brokers[name]

    # --- brokers ---

    def add_broker(self, name: str, slaves: int) -> None:
        """Add a broker that is not started yet."""
        number = len(self._stores) + 1
        store = RecordingStore(
            name,
            f"10.1.{number}.0:10911",
            settings=broker_settings(name, _CLUSTER, self._limits),
            on_append=self._on_append,
            on_commit=self._on_commit,
            damage=self._damage,
            on_half=lambda at, half: self.on_half(name, at, half),
        )
        self._stores[name] = store
        self.ahead_ms[name] = self._clocks_ms[(number - 1) % len(self._clocks_ms)]
        for broker_id in range(slaves + 1):
            readable = self._slave_readable or broker_id == MASTER_ID
            replica = _Replica(store, broker_id, partial(self._now_ms, name), readable=readable)
            self.replicas[name, broker_id] = replica
            addr = f"10.1.{number}.{broker_id}:10911"
            members = GroupMembers(self._network.scheduler, self._removed)
            handle = partial(self._serve, replica, members)
            server = Server(self._network, addr, f"{name}-{broker_id}", handle)
            server.on_executed, server.on_ended = partial(self._executed, name, members), members.ended
            self.servers[name, broker_id] = server

    def _now_ms(self, name: str) -> int:
        """Return the time of a broker's clock."""
        return self._clock.now_ms() + self.ahead_ms[name]

    def start_broker(self, name: str, broker_id: int = MASTER_ID) -> None:
        """Start a broker's server: it registers soon after it listens."""
        if broker_id == MASTER_ID and name in self.retired:
            return
        self.servers[name, broker_id].start()
        life = self._lives[name, broker_id] = object()
        delay_s = self._network.chance.random() * 0.2
        self._network.scheduler.after(delay_s, partial(self._keep_registered, name, broker_id, life))

    def stop_broker(self, name: str, broker_id: int, away_s: float, state: State) -> None:
        """Stop a broker's server for some time."""
        server = self.servers[name, broker_id]
        server.stop(state)
        if state is State.KILLED:
            if broker_id == MASTER_ID:
                self._stores[name].locks.clear()  # brokers have them in memory
                self.lost_locks[name] = self._network.scheduler.now
            notice_s = self._network.chance.random() * 10
            for one in self.name_servers:
                self._network.scheduler.after(notice_s, partial(self._gone, one, name, broker_id))
        self._network.scheduler.after(away_s, partial(self._start_again, server))

    def _start_again(self, server: Server) -> None:
        """Start a server in the role that it has by then."""
        for key, each in tuple(self.servers.items()):
            if each is server:
                self.start_broker(*key)

    def _gone(self, one: NameServer, name: str, broker_id: int) -> None:
        if not self.servers[name, broker_id].running:
            self._unregistered(one, name, broker_id)

    def switch_master(self, name: str) -> None:
        """Make the first slave the master, as a controller does: it is in sync, and the two change places."""
        master, slave = (name, MASTER_ID), (name, 1)
        if name in self.retired or not self.servers[slave].running:
            return
        for table in (self.servers, self.replicas):
            table[master], table[slave] = table[slave], table[master]  # type: ignore[index]
        for key in (master, slave):
            replica = self.replicas[key]
            replica.broker_id, replica.lag = key[1], 0
            replica.readable = self._slave_readable or key == master
            if self.servers[key].running:
                self.start_broker(*key)

    def delay_index(self, broker: str, messages: int, for_s: float) -> None:
        """Have a master acknowledge messages that it does not show yet: its index is behind its log."""
        replica = self.replicas[broker, MASTER_ID]
        store = replica.store
        replica.shown = {
            (topic, queue_id): store.log(topic, queue_id).max_offset
            for topic, config in store.topics.items()
            for queue_id in range(max(config.read_queues, config.write_queues))
        }
        replica.lag = messages
        self._network.scheduler.after(for_s, partial(self._catch_up, replica))

    def _catch_up(self, replica: Replica) -> None:
        """Have a replica show everything."""
        replica.lag = 0
        self._tell_suspended()

    def change_topic(self, topic: str, broker: str, **changes: object) -> None:
        """Change a topic's settings at a broker, which tells the name servers."""
        store = self._stores[broker]
        store.create_topic(replace(store.topics[topic], **changes))  # type: ignore[arg-type]
        self.announce()

    def retire(self, name: str, state: State) -> None:
        """Have a master's machine vanish, or hang: it never comes back."""
        self.retired.add(name)
        self.servers[name, MASTER_ID].stop(state)

    def restore(self) -> None:
        """Start whatever is down, and let no slave lag."""
        for number, one in enumerate(self.name_servers):
            if not one.server.running:
                self._back(number)
        for name, store in self._stores.items():
            for topic, config in tuple(store.topics.items()):
                if config.perm != READ_WRITE:
                    self.change_topic(topic, name, perm=READ_WRITE)
        for proxy in self.proxies:
            proxy.mischief.clear()
            if not proxy.running:
                proxy.start()
        for (name, broker_id), server in self.servers.items():
            server.mischief.clear()
            self.replicas[name, broker_id].lag = 0
            if not server.running:
                self.start_broker(name, broker_id)

    def announce(self) -> None:
        """Have every broker register: a topic has changed."""
        for name, broker_id in self.servers:
            self._register(name, broker_id)

    def _master(self, broker: str) -> Replica:
        if not self.servers[broker, MASTER_ID].running:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"cannot find addr for broker {broker}")
        return self.replicas[broker, MASTER_ID]

    def _removed(self, how: str) -> None:
        self.happened[f"a member of the group is removed: {how}"] += 1

    def _serve(self, replica: Replica, members: GroupMembers, frame: Frame, most: int | None) -> Reply:
        replica.store.members = members.by_group()
        operation = self._operations.get(frame.command.code)
        limits = replica.limits if most is None else replace(replica.limits, messages=most)
        reply = execute(frame, operation and (lambda it: operation(replica, it, limits)))
        if replica.is_slave and frame.command.code == RequestCode.PULL_MESSAGE and reply.body:
            self.servers[replica.store.name, replica.broker_id].happened["pull answered by a slave"] += 1
        return reply

    def _executed(
        self, broker: str, members: GroupMembers, session: Session, frame: Frame, reply: Reply
    ) -> None:
        members.executed(session, frame)
        for watcher in self.watchers:
            watcher(broker, session, frame, reply)

    def _tell_suspended(self) -> None:
        for server in (*self.servers.values(), *self.proxies):
            server.news()
