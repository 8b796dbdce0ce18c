"""Diagnose a RocketMQ cluster from this machine, within seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.client.groups.group_lag import (
    GroupPosition,
    count_messages,
    group_lag,
    group_topics,
    without,
)
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.pull_lanes import is_of_proxy
from pyspark_rocketmq.errors import (
    AuthenticationError,
    BrokerError,
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
    UnsupportedRequestError,
)
from pyspark_rocketmq.inventory import ClusterInfo
from pyspark_rocketmq.model import MASTER_ID, Permission
from pyspark_rocketmq.model.names import suggest_names
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.remoting.body import decode_runtime_info
from pyspark_rocketmq.remoting.header import GetBrokerRuntimeInfoRequest, GetRouteInfoRequest
from pyspark_rocketmq.tools.findings import Finding, bad, good, poor

__all__ = ["examine"]

T = TypeVar("T")
R = TypeVar("R")

_TIMEOUT_MS: Final = 2_000
"""Per check: all checks run concurrently, and the command promises an answer within 5 s."""

_STARTING_S: Final = 0.2
_MAX_SKEW_MS: Final = 5_000
_DISK_FULL: Final = 0.9
_ANY_TOPIC: Final = "TBW102"
_SERVED: Final = "what a proxy serves is in docs/addresses.md; the name servers' address shows more"
_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class _Server:
    """What an address that was given as a name server's turned out to be."""

    finding: Finding
    info: ClusterInfo | None = None
    is_proxy: bool = False


def examine(
    options: ClientOptions, *, topic: str | None = None, group: str | None = None, clock: Clock = SYSTEM_CLOCK
) -> list[Finding]:
    """Check the name servers, every broker's advertised address, and a topic and a group.

    Changes nothing on the brokers.

    Parameters
    ----------
    options : ClientOptions
    topic, group : str, optional
        What else to check.
    """
    hasty = replace(options, connect_timeout_ms=_TIMEOUT_MS, request_timeout_ms=_TIMEOUT_MS)
    seen = _side_by_side(lambda addr: _name_server(hasty, addr, clock), hasty.name_servers)
    findings = [server.finding for server in seen]
    infos = [server.info for server in seen if server.info is not None]
    if not infos:
        if any(server.is_proxy for server in seen):
            findings += _through_proxy(hasty, topic, group, clock)
        return findings
    findings += _same_brokers(options.name_servers, [server.info for server in seen])
    brokers = {
        (name, broker_id, addr)
        for info in infos
        for name, data in info.brokers.items()
        for broker_id, addr in data.addresses.items()
    }
    if not brokers:
        advice = "start a broker with namesrvAddr (or NAMESRV_ADDR) set to this name server"
        return [*findings, bad("brokers", "none is registered at the name servers", advice)]
    answering = [addr for addr, server in zip(hasty.name_servers, seen, strict=True) if server.info]
    hasty = replace(hasty, name_servers=tuple(answering))
    with Client(hasty, operation_timeout_ms=_TIMEOUT_MS, clock=clock) as client:
        checks = [partial(_broker, hasty, *broker, clock=clock) for broker in sorted(brokers)]
        if topic is not None:
            checks.append(partial(_topic, client, topic))
        if group is not None:
            checks.append(partial(_group, client, group, topic))
        answers = _side_by_side(lambda check: check(), checks)
    return findings + [finding for found in answers for finding in found]


def _side_by_side(look: Callable[[T], R], things: Iterable[T]) -> list[R]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="doctor") as threads:
        return list(threads.map(look, things))


def _name_server(options: ClientOptions, addr: str, clock: Clock) -> _Server:
    subject = f"name server {addr}"
    alone = replace(options, name_servers=(addr,))
    try:
        with Client(alone, operation_timeout_ms=_TIMEOUT_MS, clock=clock) as client:
            info = Admin(client).cluster_info()
            known = f"knows {len(info.brokers)} brokers in {len(info.clusters)} clusters"
            return _Server(good(subject, known), info)
    except UnsupportedRequestError as error:
        if _is_proxy(alone, addr, clock):
            found = poor(f"proxy {addr}", "it does not list brokers, so they are not checked", _SERVED)
            return _Server(found, is_proxy=True)
        return _Server(
            bad(subject, str(error), "use the port of the name server, or a proxy's remoting port")
        )
    except RocketMQError as error:
        tls = (
            "; TLS is on: is it on there too (tls=true)?"
            if options.tls
            else "; does it ask for TLS (tls=true)?"
        )
        advice = "check host, port (9876 by default) and firewall, and that it is a name server" + tls
        return _Server(bad(subject, str(error), advice))


def _is_proxy(options: ClientOptions, addr: str, clock: Clock) -> bool:
    """Whether a server that lists no brokers is a proxy: a broker does not know routes either."""
    try:
        with Client(options, operation_timeout_ms=_TIMEOUT_MS, clock=clock) as client:
            request = GetRouteInfoRequest(topic=_ANY_TOPIC)
            return is_of_proxy(client.connection(addr).call(request, deadline=client.deadline(_TIMEOUT_MS)))
    except RocketMQError:
        return False


def _through_proxy(
    options: ClientOptions, topic: str | None, group: str | None, clock: Clock
) -> list[Finding]:
    """Check what a proxy shows of a topic and of a group."""
    with Client(options, operation_timeout_ms=_TIMEOUT_MS, clock=clock) as client:
        findings = [] if topic is None else _topic(client, topic)
        if group is None:
            return findings
        subject = f"group {group}"
        if topic is None:
            advice = "name a topic with --topic"
            return [poor(subject, "a proxy does not list the topics of a group", advice)]
        try:
            lags = group_lag(client, group, (topic,))
        except RocketMQError as error:
            return [*findings, _failed(subject, error, options)]
    return [*findings, *_position(subject, lags, f"on {topic}")]


def _same_brokers(name_servers: Sequence[str], infos: Sequence[ClusterInfo | None]) -> list[Finding]:
    """Compare the data of the name servers, which do not synchronize with each other."""
    known = {
        addr: frozenset(info.brokers)
        for addr, info in zip(name_servers, infos, strict=True)
        if info is not None
    }
    everywhere = frozenset[str]().union(*known.values())
    return [
        poor(
            f"name server {addr}",
            f"does not know {', '.join(sorted(everywhere - names))}, which others know",
            "list every name server in the namesrvAddr of every broker",
        )
        for addr, names in known.items()
        if names != everywhere
    ]


def _broker(options: ClientOptions, name: str, broker_id: int, addr: str, *, clock: Clock) -> list[Finding]:
    role = "master" if broker_id == MASTER_ID else f"slave {broker_id}"
    subject = f"broker {name}, {role}"
    try:
        with Client(options, operation_timeout_ms=_TIMEOUT_MS, clock=clock) as client:
            deadline = client.deadline(_TIMEOUT_MS)
            asked_ms = clock.now_ms()
            facts = _runtime_info(client.connection(addr), deadline, clock)
            skew_ms = _skew_ms(facts, asked_ms, clock.now_ms())
    except AuthenticationError as error:
        return [bad(subject, str(error), _access_advice(options))]
    except (ConnectionLostError, RequestTimeoutError) as error:
        return [
            bad(subject, str(error), f"is {addr} this broker's port, and does it ask for TLS (tls=true)?")
        ]
    except ConnectError as error:
        advice = (
            f"the broker tells the name servers to send clients to {addr}: set brokerIP1 in its broker.conf "
            "to an address that can be reached from here (usual with containers), or open the way there"
        )
        return [bad(subject, f"its advertised address {addr} cannot be reached: {error.message}", advice)]
    except RocketMQError as error:
        return [bad(subject, str(error), "look into the broker's log")]
    findings = [good(subject, f"{facts.get('brokerVersionDesc', 'version unknown')} at {addr}")]
    return findings + _health(subject, facts, skew_ms)


def _runtime_info(connection: Connection, deadline: Deadline, clock: Clock) -> dict[str, str]:
    """Ask a broker for its runtime facts. A 4.9 broker has none in its first second and throws."""
    while True:
        try:
            response = connection.call(GetBrokerRuntimeInfoRequest(), deadline=deadline)
            return decode_runtime_info(response.require().body)
        except BrokerError as error:
            if "NoSuchElementException" not in (error.remark or "") or deadline.remaining_s <= _STARTING_S:
                raise
        clock.sleep(_STARTING_S)


def _access_advice(options: ClientOptions) -> str:
    if options.access_key is None:
        return "the broker asks who you are: set ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY"
    return "check the key pair, and that the user may do this (a reader needs Sub and Get)"


def _skew_ms(facts: dict[str, str], asked_ms: int, answered_ms: int) -> int | None:
    """Return how far the broker's clock is ahead, computed from its reported start time and uptime."""
    started, running = facts.get("bootTimestamp", ""), facts.get("runtime", "")
    numbers = [int(part) for part in "".join(c if c.isdigit() else " " for c in running).split()]
    if not started.isdigit() or len(numbers) != 4:
        return None
    days, hours, minutes, seconds = numbers
    now_ms = int(started) + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    return now_ms - (asked_ms + answered_ms) // 2


def _health(subject: str, facts: dict[str, str], skew_ms: int | None) -> list[Finding]:
    findings = []
    if skew_ms is not None and abs(skew_ms) > _MAX_SKEW_MS:
        side = "ahead of" if skew_ms > 0 else "behind"
        advice = "set both clocks by NTP: starts by time and delays are by the broker's clock"
        findings.append(poor(subject, f"its clock is {abs(skew_ms) / 1000:.0f} s {side} this one", advice))
    for fact in ("commitLogDiskRatio", "consumeQueueDiskRatio"):
        try:
            ratio = float(facts.get(fact, ""))
        except ValueError:
            continue
        if ratio >= _DISK_FULL:
            advice = "make room: brokers refuse messages and delete old ones early when the disk is full"
            findings.append(poor(subject, f"its disk is {ratio:.0%} full", advice))
            break
    return findings


def _topic(client: Client, topic: str) -> list[Finding]:
    subject = f"topic {topic}"
    try:
        route = client.route(topic)
        queues = route.read_queues()
        if not queues:
            perms = ", ".join(f"{data.broker_name} {data.perm!r}" for data in route.queues)
            return [bad(subject, f"no queue of it may be read ({perms})", "give it read permission (perm 6)")]
        away: dict[str, RocketMQError] = {}
        counts = count_messages(client, (topic,), on_away=away.__setitem__)[topic]
        if away and not counts:
            raise next(iter(away.values()))
        _check_rights(away)
    except TopicNotFoundError as error:
        problem, _, guess = error.message.partition("; ")
        return [bad(subject, problem, guess or "create it: pyspark-rocketmq topic create " + topic)]
    except RocketMQError as error:
        return [_failed(subject, error, client.options)]
    seen = f"{len(queues)} queues, {sum(counts.values()):,} messages{without(away)}"
    findings = [good(subject, seen)]
    if not any(Permission.WRITE in data.perm for data in route.queues):
        findings.append(poor(subject, "it may not be written", "give it write permission (perm 6)"))
    return findings


def _check_rights(away: Mapping[str, RocketMQError]) -> None:
    """Raise what a broker says that refuses the account: it ends a query, whatever the others answer."""
    for error in away.values():
        if isinstance(error, AuthenticationError):
            raise error


def _failed(subject: str, error: RocketMQError, options: ClientOptions) -> Finding:
    if isinstance(error, AuthenticationError):
        return bad(subject, str(error), _access_advice(options))
    return bad(subject, str(error), "its brokers must be reachable: see above")


def _group(client: Client, group: str, topic: str | None) -> list[Finding]:
    subject = f"group {group}"
    away: dict[str, RocketMQError] = {}
    on_away = away.__setitem__
    admin = Admin(client)
    try:
        with ThreadPoolExecutor(2, thread_name_prefix="doctor") as threads:
            connected = threads.submit(admin.consumer_connections, group, on_away=on_away)
            read = threads.submit(group_topics, client, group, on_away=on_away)
            known = admin.groups(include_system=True, on_away=on_away)
        _check_rights(away)
        if group not in known:
            hint = suggest_names(group, known)
            rule = "brokers create groups on first use unless autoCreateSubscriptionGroup=false"
            return [poor(subject, f"no broker knows it{without(away)}", f"{hint} {rule}".lstrip())]
        if not known[group].consume_enable:
            return [bad(subject, "it may not consume", "enable it: consumeEnable of the group's settings")]
        online = sum(len(seen.clients) for seen in connected.result().values())
        topics = (topic,) if topic is not None else read.result()
        lags = group_lag(client, group, topics, on_away=on_away)
        _check_rights(away)
    except RocketMQError as error:
        return [_failed(subject, error, client.options)]
    return _position(subject, lags, f"on {len(topics)} topics, {online} consumers online{without(away)}")


def _position(subject: str, lags: Sequence[GroupPosition], where: str) -> list[Finding]:
    findings = [good(subject, f"{sum(row.lag for row in lags):,} messages behind {where}")]
    expired = [row for row in lags if row.committed is not None and row.committed < row.min_offset]
    if expired:
        lost = sum(row.min_offset - (row.committed or 0) for row in expired)
        advice = "read faster or keep messages longer (fileReservedTime); a query needs failOnDataLoss=false"
        findings.append(poor(subject, f"{lost:,} messages expired before it consumed them", advice))
    return findings
