"""The same call at several brokers, in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias, TypeVar

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.queue_requests import is_gone
from pyspark_rocketmq.client.retry import ONCE_MORE, retry
from pyspark_rocketmq.errors import BrokerNotFoundError, RocketMQError
from pyspark_rocketmq.inventory import ClusterInfo
from pyspark_rocketmq.model import MessageQueue

__all__ = [
    "OnAway",
    "call_at_once",
    "call_until_done",
    "calls_at_once",
    "glance",
    "glance_deadline",
    "glance_each",
]

K = TypeVar("K")
T = TypeVar("T")

_GLANCE_MS: Final = 2_000
"""How long callers for whom the answer is optional wait for each broker."""

OnAway: TypeAlias = Callable[[str, RocketMQError], None]
"""Called with the name of a broker that does not answer soon, and the cause."""


def call_at_once(
    client: Client, info: ClusterInfo, broker_names: Iterable[str], call: Call[T], deadline: Deadline
) -> dict[str, T | RocketMQError]:
    """Make the same call at the masters of brokers, in parallel and once; return each outcome."""
    calls = {(name, 0): call for name in broker_names}
    return {name: outcome for (name, _), outcome in calls_at_once(client, info, calls, deadline).items()}


def calls_at_once(
    client: Client, info: ClusterInfo, calls: Mapping[tuple[str, K], Call[T]], deadline: Deadline
) -> dict[tuple[str, K], T | RocketMQError]:
    """Make calls at the masters of brokers, in parallel and once; the keys begin with the broker's name."""
    placed: list[tuple[tuple[str, K], str, Call[T]]] = []
    found: dict[tuple[str, K], T | RocketMQError] = {}
    for key, call in calls.items():
        master = info.brokers[key[0]].master if key[0] in info.brokers else None
        if master is None:
            found[key] = BrokerNotFoundError("no name server knows a master of the broker")
        else:
            placed.append((key, master, call))
    outcomes = client.pool.call_each(placed, deadline=deadline)
    found.update(outcomes)
    return {
        key: outcome.with_facts(broker_name=key[0]) if isinstance(outcome, RocketMQError) else outcome
        for key, outcome in found.items()
    }


def call_until_done(client: Client, broker_names: Iterable[str], call: Call[T]) -> dict[str, T]:
    """Make the same call at the masters of brokers, in parallel, until each has succeeded.

    Raises
    ------
    RocketMQError
        The error of a broker that rejected the call, or still failed at the client's operation timeout.
    """
    deadline = client.deadline()
    wanted = tuple(broker_names)
    answers: dict[str, T] = {}

    def attempt() -> None:
        left = [name for name in wanted if name not in answers]
        info = client.name_servers.cluster_info(deadline=deadline)
        soon = deadline.sooner(client.request_timeout_ms)
        outcomes = call_at_once(client, info, left, call, soon)
        found, failed = _split(outcomes)
        answers.update(found)
        if failed:
            raise min(failed.values(), key=lambda error: error.retriable)

    retry(attempt, deadline=deadline, clock=client.clock, random=client.random)
    return answers


def glance_deadline(client: Client) -> Deadline:
    """Return until when callers wait for whom an answer is optional."""
    return client.deadline(min(_GLANCE_MS, client.request_timeout_ms))


def glance(
    client: Client, broker_names: Iterable[str], call: Call[T], on_away: OnAway
) -> tuple[dict[str, T], dict[str, RocketMQError]]:
    """Make the same call once, and tell ``on_away`` which brokers do not answer soon; return both parts."""
    deadline = glance_deadline(client)
    info = client.name_servers.cluster_info(deadline=client.deadline())
    outcomes = call_at_once(client, info, broker_names, call, deadline)
    found, failed = _split(outcomes)
    for name, error in failed.items():
        on_away(name, error)
    return found, failed


def glance_each(
    client: Client, calls: Mapping[MessageQueue, Call[T]], on_away: OnAway
) -> dict[MessageQueue, T]:
    """Make one call per queue; return the answers, and tell ``on_away`` which brokers do not answer soon.

    A queue whose topic was deleted meanwhile has no answer, and no broker is away for it.
    """
    outcomes = client.requests.try_each(calls, deadline=glance_deadline(client), policy=ONCE_MORE)
    answers: dict[MessageQueue, T] = {}
    for queue, outcome in outcomes.items():
        if is_gone(outcome):
            continue
        if isinstance(outcome, RocketMQError):
            on_away(str(outcome.facts.get("broker_name", queue.broker_name)), outcome)
        else:
            answers[queue] = outcome
    return answers


def _split(
    outcomes: Mapping[str, T | RocketMQError],
) -> tuple[dict[str, T], dict[str, RocketMQError]]:
    """Return the answers, and the errors."""
    found: dict[str, T] = {}
    failed: dict[str, RocketMQError] = {}
    for name, outcome in outcomes.items():
        if isinstance(outcome, RocketMQError):
            failed[name] = outcome
        else:
            found[name] = outcome
    return found, failed
