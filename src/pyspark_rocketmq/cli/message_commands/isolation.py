"""``--isolation``: which rows of transactional writes a command reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pyspark_rocketmq.errors import BrokerNotFoundError, OptionError
from pyspark_rocketmq.options.choices import Isolation

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.client.commits.commit_log import Committed
    from pyspark_rocketmq.model import MessageQueue

__all__ = ["AsIsolation", "CommitTopic", "Isolation", "find_committed"]

AsIsolation = Annotated[
    Isolation,
    typer.Option(
        "--isolation",
        help="read_committed: of writes with transactionVisibility=committed, only what is committed now.",
    ),
]
CommitTopic = Annotated[
    str | None,
    typer.Option(
        "--commit-topic", help="With --isolation: the commit topic. [the topic's name with -commits]"
    ),
]

_READABLE_MS: Final = 10_000


def find_committed(
    client: Client,
    topic: str,
    queues: Iterable[MessageQueue],
    isolation: Isolation,
    commit_topic: str | None,
) -> Committed | None:
    """Return which messages of transactional writes are rows; None for all. Take ends of queues after that.

    Raises
    ------
    BrokerNotFoundError
        The commit topic does not exist; or not all committed rows of the queues can be read.
    OptionError
        The options do not belong together.
    RocketMQError
    """
    if isolation is Isolation.READ_UNCOMMITTED:
        if commit_topic is not None:
            raise OptionError("--commit-topic needs --isolation read_committed")
        return None
    from pyspark_rocketmq.client.commits.commit_log import read_committed, require_commit_queue
    from pyspark_rocketmq.client.send.readable import wait_until_readable
    from pyspark_rocketmq.model.names import commit_topic_of

    name = commit_topic_of(topic, commit_topic)
    require_commit_queue(client, name)
    committed = read_committed(client, {topic: name})
    ends = {queue: parts[-1][1] for queue in queues if (parts := committed.ranges.get(queue))}
    if not wait_until_readable(client, ends, timeout_ms=_READABLE_MS):
        raise BrokerNotFoundError("not all committed rows can be read now: a broker is down", topic=topic)
    return committed
