"""Regular replays: each run continues where the one before it ended."""

# The position is committed for another group, so that every machine continues there.

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.errors import TopicNotFoundError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.model.names import MAX_GROUP_LENGTH
from pyspark_rocketmq.tools.dead_letters.policy import ReplayRule
from pyspark_rocketmq.tools.dead_letters.summary import DeadLetterSummary, summarize
from pyspark_rocketmq.tools.replay import Replay, find_ranges, select_replays, send_replays

__all__ = ["FoundReplays", "find_new_replays", "position_group", "positions_after", "send_new_replays"]

_POSITIONS: Final = "replay_"


@dataclass(frozen=True, slots=True)
class FoundReplays:
    """The messages that a run of a rule resends.

    Parameters
    ----------
    ranges : tuple of OffsetRange
        What was read.
    replays : tuple of Replay
        The messages to resend, in store order.
    """

    rule: ReplayRule
    ranges: tuple[OffsetRange, ...]
    replays: tuple[Replay, ...]

    def summary(self, now_ms: int) -> DeadLetterSummary:
        """Return numbers by age, cause and tag."""
        return summarize((replay.message for replay in self.replays), now_ms)


def position_group(group: str) -> str:
    """Return the group whose committed offsets are the position of regular replays."""
    name = f"{_POSITIONS}{group}"
    if len(name) <= MAX_GROUP_LENGTH:
        return name
    digest = hashlib.sha256(group.encode()).hexdigest()[:16]
    return f"{name[: MAX_GROUP_LENGTH - 1 - len(digest)]}-{digest}"


def find_new_replays(client: Client, rule: ReplayRule, now_ms: int) -> FoundReplays:
    """Find the messages that earlier runs have not read. A group without dead letters has none.

    Raises
    ------
    OptionError, RocketMQError
        As `find_replays`.
    """
    chosen = rule.chosen_at(now_ms)
    try:
        ranges = find_ranges(client, rule.group, rule.origin, chosen)
    except TopicNotFoundError:  # no message was ever sent back
        return FoundReplays(rule, (), ())
    committed = client.committed_offsets(position_group(rule.group), [each.queue for each in ranges])
    rest = _after(ranges, committed)
    return FoundReplays(rule, tuple(rest), tuple(select_replays(client, rest, chosen, to=rule.to)))


def send_new_replays(client: Client, found: FoundReplays) -> int:
    """Resend the messages, commit the position, and return the number.

    At least once: after an error, the position is that after the last message that was stored.

    Raises
    ------
    SendError, RocketMQError
    """
    if not found.ranges:
        return 0
    limit = found.rule.chosen.limit
    group = position_group(found.rule.group)
    # A broker that does not take the position says so before anything is sent.
    client.commit_offsets(group, positions_after(found.ranges, found.replays, 0, limit=limit))
    sent = 0
    try:
        for _ in send_replays(client, found.replays, rate=found.rule.rate):
            sent += 1
    finally:
        if sent:
            positions = positions_after(found.ranges, found.replays, sent, limit=limit)
            client.commit_offsets(group, positions)
    return sent


def positions_after(
    ranges: Sequence[OffsetRange], replays: Sequence[Replay], sent: int, *, limit: int | None
) -> dict[MessageQueue, int]:
    """Return the position in each queue after a number of messages were resent.

    Parameters
    ----------
    limit : int, optional
        The maximum number of messages of a run: if it was reached, others may come after the last one.
    """
    positions = {each.queue: each.until_offset for each in ranges}
    if limit is not None and len(replays) >= limit:  # what comes after the last one was not looked at
        last = {replay.message.queue: replay.message.queue_offset + 1 for replay in replays}
        positions = {each.queue: last.get(each.queue, each.from_offset) for each in ranges}
    for replay in reversed(replays[sent:]):
        positions[replay.message.queue] = replay.message.queue_offset
    return positions


def _after(ranges: Sequence[OffsetRange], committed: Mapping[MessageQueue, int | None]) -> list[OffsetRange]:
    """Return the rest of the ranges. A position after a queue's end is of a deleted topic."""
    rest = []
    for each in ranges:
        position = committed[each.queue] or 0
        start = position if each.from_offset < position <= each.until_offset else each.from_offset
        if start < each.until_offset:
            rest.append(OffsetRange(each.queue, start, each.until_offset))
    return rest
