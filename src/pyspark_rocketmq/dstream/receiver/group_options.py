"""The consumer options of a receiver."""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.client.groups.push_options import ConsumeFromWhere, PushOptions
from pyspark_rocketmq.options import MessageModel, ReceiverOptions, StartFrom
from pyspark_rocketmq.planning.assign import AllocateStrategy

__all__ = ["push_options"]

_QUEUE_BYTES: Final = 16 << 20
_SPAN: Final = 1 << 20
_STARTS: Final = {
    StartFrom.LATEST: ConsumeFromWhere.LAST_OFFSET,
    StartFrom.EARLIEST: ConsumeFromWhere.FIRST_OFFSET,
    StartFrom.TIMESTAMP: ConsumeFromWhere.TIMESTAMP,
}


def push_options(options: ReceiverOptions) -> PushOptions:
    """Return the consumer options of a receiver."""
    return PushOptions(
        broadcasting=options.message_model is MessageModel.BROADCASTING,
        ordered=options.ordered,
        start=_STARTS[options.start],
        timestamp_ms=options.timestamp_ms,
        allocate=AllocateStrategy(options.allocation.value),
        threads=1,
        pull_batch_size=options.pull_batch_size,
        max_queued=options.queue_size,
        max_queued_bytes=_QUEUE_BYTES,
        max_span=_SPAN,
        heartbeat_ms=options.heartbeat_ms,
        commit_ms=max(1, options.commit_ms),
    )
