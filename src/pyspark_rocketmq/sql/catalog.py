"""Topics as tables: list them, and infer the columns of their messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.client import Admin, Client
from pyspark_rocketmq.client.read.message_search import last_messages
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.sql.infer import Inferred, infer_columns

__all__ = ["TableDescription", "describe_table", "list_tables", "sample_columns"]

_SAMPLE: Final = 1_000


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A topic as a table.

    Parameters
    ----------
    topic : str
    inferred : Inferred
        The columns of its bodies, and how many bodies were inspected.
    """

    topic: str
    inferred: Inferred

    def ddl(self, name_server: str | None = None) -> str:
        """Return the ``CREATE TABLE`` statement that reads the topic, ready for a job file."""
        columns = [f"  `{name.replace('`', '``')}` {kind}" for name, kind in self.inferred.columns.items()]
        options = {"connector": "rocketmq", "topic": self.topic, "nameServer": name_server}
        lines = [f"  '{name}' = '{value}'" for name, value in options.items() if value is not None]
        table = "".join(c if c.isascii() and c.isalnum() else "_" for c in self.topic)
        return "\n".join(
            [f"CREATE TABLE `{table}` (", ",\n".join(columns), ") WITH (", ",\n".join(lines), ");"]
        )


def list_tables(client: Client) -> tuple[str, ...]:
    """Return the topics in order, without RocketMQ's internal ones.

    Raises
    ------
    NameServerError, TransportError, BrokerError
    """
    return tuple(sorted(Admin(client).topics()))


def sample_columns(client: Client, topic: str, *, sample: int = _SAMPLE) -> Inferred:
    """Infer a topic's columns from its newest messages. Consumes nothing.

    Raises
    ------
    OptionError
        The topic has no messages, or none of them is a JSON object.
    TopicNotFoundError, NameServerError, TransportError, BrokerError
    """
    messages = last_messages(client, client.read_queues(topic), sample)
    inferred = infer_columns(message.body for message in messages)
    if not inferred.columns:
        found = f"{inferred.seen} messages, none of them a JSON object" if inferred.seen else "no messages"
        raise OptionError(f"no columns can be inferred: the topic has {found}", topic=topic)
    return inferred


def describe_table(client: Client, topic: str, *, sample: int = _SAMPLE) -> TableDescription:
    """Return a topic with the columns of its newest messages. Raises as `sample_columns`."""
    return TableDescription(topic, sample_columns(client, topic, sample=sample))
