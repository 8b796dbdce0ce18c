"""The options of reading ranges."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_rocketmq.model import MessageSelector

__all__ = ["ReadOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of reading ranges.

    Parameters
    ----------
    consumer_group : str
        Sent with every pull; the broker creates the group if it is allowed to.
    selector : MessageSelector
    fail_on_data_loss : bool
        Whether lost messages raise `DataLossError` or are counted and skipped.
    follow_resets : bool
        Whether an operator's reset of the group ends the read with `GroupResetError`, as members of it need.
        Other readers keep separate offsets, which a reset does not change.
    pull_batch_size : int
        Maximum messages per pull; brokers limit it (32 by default).
    pulls_in_flight : int, optional
        The most pulls in flight of one reader, over all its ranges; by default as many as `PullDepth` says.
        The first range has them for itself when later ones took them while its broker was away.
    max_bytes_in_flight : int
        Bound on the answers that one reader has asked for or holds until their turn comes, over all its
        ranges. It goes by the size of former answers of the topic from the broker, and counts 4 MiB for each
        until there is one; messages that suddenly become larger exceed it once. One pull is always in
        flight.
    stall_timeout_ms : int
        How long a range may make no progress, with any number of retries, before the read fails. Counted from
        the first failure, so the consumer's processing time does not count.
    empty_pull_delay_ms : int
        First delay before a retry of planned messages that a broker does not have; doubles with each retry.
    missing_patience_ms : int
        How long a master must lack planned messages at the end of its queue, without interruption, before
        they count as lost: a broker that restarts rebuilds its index. Slaves may lag: they never decide about
        loss.
    """

    consumer_group: str
    selector: MessageSelector = MessageSelector()  # noqa: RUF009 - frozen
    fail_on_data_loss: bool = True
    follow_resets: bool = False
    pull_batch_size: int = 1024
    pulls_in_flight: int | None = None
    max_bytes_in_flight: int = 32 << 20
    stall_timeout_ms: int = 120_000
    empty_pull_delay_ms: int = 10
    missing_patience_ms: int = 10_000
