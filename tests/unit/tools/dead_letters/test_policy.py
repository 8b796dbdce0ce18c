"""Files of policies, and where a run of one ends."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import Message, MessageQueue, OffsetRange
from pyspark_rocketmq.options.text.kinds import GROUP
from pyspark_rocketmq.tools.dead_letters.policy import (
    ReplayPolicy,
    ReplayRule,
    parse_policy,
    read_policy,
)
from pyspark_rocketmq.tools.dead_letters.regular import position_group, positions_after
from pyspark_rocketmq.tools.dead_letters.summary import cause_of, summarize
from pyspark_rocketmq.tools.origins import Origin
from pyspark_rocketmq.tools.replay import Replay, ReplayFilter, count_replays, in_store_order

HOUR = 3_600_000
DAY = 24 * HOUR


def parse(text: str) -> ReplayPolicy:
    return parse_policy(tomllib.loads(text), "p.toml")


def test_a_policy_has_a_rule_for_each_group() -> None:
    found = parse(
        """
        every = "10m"
        [[replay]]
        group = "billing"
        maxAge = "7d"
        maxReplays = 5
        rate = 50
        limit = 1000
        tags = ["refund"]
        keys = ["k"]
        topic = "orders"
        text = "x"
        [[replay]]
        group = "mail"
        from = "retry"
        to = "mails-repaired"
        """
    )
    chosen = ReplayFilter(
        tags=frozenset({"refund"}), keys=frozenset({"k"}), topic="orders", text="x", limit=1000
    )
    assert found == ReplayPolicy(
        (
            ReplayRule(group="billing", chosen=chosen, rate=50, max_age_ms=7 * DAY, max_replays=5),
            ReplayRule(group="mail", origin=Origin.RETRY, to="mails-repaired"),
        ),
        600_000,
    )
    assert found.rules[0].chosen_at(10 * DAY).since_ms == 3 * DAY
    assert found.rules[1].chosen_at(10 * DAY) == ReplayFilter(max_replays=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"one or more tables \[\[replay\]\]"),
        ("replay = []", "one or more tables"),
        ("replay = {}", "one or more tables"),
        ("evry = '1m'\n[[replay]]\ngroup = 'g'", r"unknown key evry: did you mean every\?"),
        ("[[replay]]\ngroup = 'g'\nmaxage = '1d'", r"unknown key maxage: did you mean maxAge\?"),
        ("[[replay]]\ngroup = 'g'\nsince = '1d'", "unknown key since: known are group, from"),
        ("[[replay]]\ntags = []", "needs group"),
        ("[[replay]]\ngroup = 3", "needs group"),
        ("every = 3\n[[replay]]\ngroup = 'g'", 'every takes a duration, such as "10m"'),
        ("every = '0s'\n[[replay]]\ngroup = 'g'", "every takes a duration"),
        ("[[replay]]\ngroup = 'g'\nmaxAge = 'old'", "maxAge takes a duration"),
        ("[[replay]]\ngroup = 'g'\nfrom = 'x'", "from takes dlq or retry"),
        ("[[replay]]\ngroup = 'g'\nto = ''", "to takes a text"),
        ("[[replay]]\ngroup = 'g'\ntags = 'a'", "tags takes a list of texts"),
        ("[[replay]]\ngroup = 'g'\nlimit = 0", "limit takes a whole number from 1"),
        ("[[replay]]\ngroup = 'g'\nmaxReplays = 0", "maxReplays takes a whole number from 1"),
        ("[[replay]]\ngroup = 'g'\nlimit = true", "limit takes a whole number from 1"),
        ("[[replay]]\ngroup = 'g'\nrate = -1", "rate takes messages per second"),
        ("[[replay]]\ngroup = 'g'\nrate = nan", "rate takes messages per second"),
        ("[[replay]]\ngroup = 'g'\nrate = 1e-300", "rate takes messages per second"),
        ("[[replay]]\ngroup = 'g'\nrate = '5'", "rate takes messages per second"),
    ],
)
def test_a_wrong_policy_says_what(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(text)


def test_a_file_that_is_no_policy(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="the policy cannot be read: No such file"):
        read_policy(str(tmp_path / "absent"))
    (tmp_path / "p.toml").write_text("[[replay]")
    with pytest.raises(OptionError, match="the policy is not TOML"):
        read_policy(str(tmp_path / "p.toml"))
    (tmp_path / "p.toml").write_text("\ufeff[[replay]]\ngroup = 'g'", encoding="utf-8")
    assert read_policy(str(tmp_path / "p.toml")).rules == (ReplayRule(group="g"),)


# --- positions ---

A, B = (MessageQueue("%DLQ%g", broker, 0) for broker in ("a", "b"))
RANGES = (OffsetRange(A, 10, 20), OffsetRange(B, 0, 5))


def letter(
    queue: MessageQueue, offset: int, *, tags: str | None = None, stored: int = 0, **own: str
) -> Message:
    return Message(
        *(queue.topic, queue.broker_name, queue.queue_id, offset, b"x", "ID", "OFFSET-ID", tags, None, own),
        *(0, stored, "127.0.0.1:1", "127.0.0.1:2", 0, 0, 16, 0, 0, 0, 0),
    )


def replays(*places: tuple[MessageQueue, int]) -> list[Replay]:
    return [Replay(letter(*place), "orders") for place in places]


def test_after_all_the_position_is_the_end() -> None:
    assert positions_after(RANGES, replays((A, 12), (B, 1)), 2, limit=None) == {A: 20, B: 5}
    assert positions_after(RANGES, [], 0, limit=None) == {A: 20, B: 5}
    assert positions_after((), [], 0, limit=None) == {}


def test_after_a_failure_the_position_is_the_first_that_was_not_sent() -> None:
    found = replays((A, 12), (B, 1), (A, 14), (B, 3), (A, 17))
    assert positions_after(RANGES, found, 0, limit=None) == {A: 12, B: 1}
    assert positions_after(RANGES, found, 2, limit=None) == {A: 14, B: 3}
    assert positions_after(RANGES, found, 4, limit=None) == {A: 17, B: 5}


def test_after_a_limit_the_rest_is_for_the_next_run() -> None:
    found = replays((A, 12), (A, 14))
    assert positions_after(RANGES, found, 2, limit=2) == {A: 15, B: 0}
    assert positions_after(RANGES, found, 1, limit=2) == {A: 14, B: 0}
    assert positions_after(RANGES, found, 2, limit=3) == {A: 20, B: 5}


@pytest.mark.parametrize("limit", [None, 1, 2, 3, 4, 5])
def test_a_clock_that_goes_back_changes_no_queue_s_order(limit: int | None) -> None:
    stored = [(A, 0, 100), (A, 1, 50), (A, 2, 60), (B, 0, 70), (B, 1, 120)]
    letters = [letter(queue, offset, stored=at) for queue, offset, at in stored]
    ordered = in_store_order(letters, limit)
    assert len(ordered) == (limit or 5)
    for queue in (A, B):
        offsets = [each.queue_offset for each in ordered if each.queue == queue]
        assert offsets == list(range(len(offsets))), "a position after them leaves none"


# --- what they are ---


def test_dead_letters_are_counted_by_age_cause_and_tag() -> None:
    now = 100 * DAY
    found = summarize(
        [
            letter(A, 0, tags="a", stored=now - 1),
            letter(A, 1, tags="a", stored=now - HOUR),
            letter(A, 2, stored=now - 8 * DAY, deadLetterCause="no such customer"),
            letter(A, 3, tags="b", stored=now - DAY, replays="2"),
        ],
        now,
    )
    assert list(found.ages.items()) == [
        ("below 1 hour", 1),
        ("1 to 24 hours", 1),
        ("1 to 7 days", 1),
        ("above 7 days", 1),
    ]
    assert found.causes == {
        "failed after 16 redeliveries": 2,
        "no such customer": 1,
        "failed after 16 redeliveries, replayed 2 times before": 1,
    }
    assert list(found.tags.items()) == [("a", 2), ("", 1), ("b", 1)]
    assert cause_of(letter(A, 0)._replace(reconsume_times=0)) == "failed without redelivery"


@pytest.mark.parametrize(
    ("text", "number"), [("2", 2), ("", 0), ("x", 0), ("-1", 0), ("²", 0), ("9" * 5_000, 0)]
)
def test_a_message_says_how_often_it_was_resent(text: str, number: int) -> None:
    message = letter(A, 0, replays=text)
    assert count_replays(message) == number
    sent = Replay(message, "orders").outgoing()
    assert sent.properties["replays"] == str(number + 1)
    assert ReplayFilter(max_replays=3).takes(message)
    assert ReplayFilter(max_replays=2).takes(message) == (number < 2)


def test_the_group_of_the_position_has_a_groups_name() -> None:
    """Brokers create no group with a longer name (RocketMQ 5.5), and refuse its position."""
    longest = "g" * 120
    assert GROUP.parse(longest) == longest
    assert position_group("billing") == "replay_billing"
    assert position_group(longest[:113]) == f"replay_{longest[:113]}"
    long = [position_group(f"{longest[:-number]}{'x' * number}") for number in range(1, 5)]
    assert [GROUP.parse(name) for name in long] == long
    assert len({*long}) == 4
    assert all(name.startswith("replay_ggg") for name in long)
