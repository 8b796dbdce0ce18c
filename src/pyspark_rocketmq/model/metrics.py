"""The metrics that monitoring systems get: one name for one thing, whoever measures it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Metric"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's name, and what it says.

    Parameters
    ----------
    name : str
    doc : str
        The help text.
    """

    name: str
    doc: str


LAG_MESSAGES: Final = Metric("rocketmq_lag_messages", "Messages stored and not read.")
LAG_SECONDS: Final = Metric("rocketmq_lag_seconds", "How long the oldest message to read has been stored.")
LAG_BYTES: Final = Metric("rocketmq_lag_bytes", "Bytes to read, estimated by samples.")

TOPIC_LAG_MESSAGES: Final = Metric(
    "rocketmq_topic_lag_messages", "Messages of the topic stored and not read."
)
TOPIC_LAG_SECONDS: Final = Metric(
    "rocketmq_topic_lag_seconds", "How long the topic's oldest message to read has been stored."
)

QUEUE_POSITION: Final = Metric("rocketmq_queue_position", "The next offset to read.")
QUEUE_LAG_MESSAGES: Final = Metric("rocketmq_queue_lag_messages", "Messages stored and not read.")
QUEUE_LAG_SECONDS: Final = Metric("rocketmq_queue_lag_seconds", "How long the next message has been stored.")

DEAD_LETTERS: Final = Metric("rocketmq_dead_letters", "Messages in the group's dead-letter topic.")
DEAD_LETTERS_OLDEST_SECONDS: Final = Metric(
    "rocketmq_dead_letters_oldest_seconds", "How long the oldest dead letter has been stored."
)
DEAD_LETTERS_NEWEST_SECONDS: Final = Metric(
    "rocketmq_dead_letters_newest_seconds", "How long the newest dead letter has been stored."
)

TOPIC_WRITTEN: Final = Metric(
    "rocketmq_topic_written_messages", "Messages ever written to the topic's queues at the broker."
)
TOPIC_STORED: Final = Metric(
    "rocketmq_topic_stored_messages", "Messages of the topic that the broker still has."
)

UP: Final = Metric("rocketmq_up", "Whether a name server answered.")
BROKER_UP: Final = Metric("rocketmq_broker_up", "Whether the broker answered.")

BATCH_ID: Final = Metric("rocketmq_batch_id", "The last finished micro-batch.")
BATCH_ROWS: Final = Metric("rocketmq_batch_rows", "Rows of the last micro-batch.")
BATCH_SKIPPED_OFFSETS: Final = Metric(
    "rocketmq_batch_skipped_offsets", "Offsets of the last micro-batch without a row."
)
ROWS_PER_SECOND: Final = Metric("rocketmq_rows_per_second", "Rows a second while processing.")
INPUT_ROWS_PER_SECOND: Final = Metric("rocketmq_input_rows_per_second", "Rows a second that arrive.")
