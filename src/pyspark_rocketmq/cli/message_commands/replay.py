"""``pyspark-rocketmq replay``: send retry and dead-letter messages again, once or regularly."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace as changed
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pyspark_rocketmq.cli.connect import Namesrv, Settings, connect
from pyspark_rocketmq.cli.message_commands.messages import message_text
from pyspark_rocketmq.cli.message_commands.sent import tell_sent
from pyspark_rocketmq.cli.printing import AsJson, console, examples, print_json, print_table, timestamp
from pyspark_rocketmq.cli.times import moment
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.tools.origins import Origin

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.tools.dead_letters.policy import ReplayPolicy, ReplayRule
    from pyspark_rocketmq.tools.dead_letters.summary import DeadLetterSummary
    from pyspark_rocketmq.tools.replay import Replay, ReplayFilter

__all__ = ["EXAMPLES", "replay"]

EXAMPLES: Final = examples(
    "replay billing",
    "replay billing --since -1d --tag refund --rate 50 --yes",
    "replay billing --from retry --to orders-repaired --limit 100 --yes",
    "replay billing --every 10m --max-age 2d --yes",
    "replay --policy replays.toml --yes",
    "replay billing --make-readable",
)

_SHOWN: Final = 20
_BODY_CHARACTERS: Final = 60


def replay(
    group: Annotated[str | None, typer.Argument(help="The consumer group.")] = None,
    origin: Annotated[
        Origin | None, typer.Option("--from", help="The group's dead-letter topic or its retry topic. [dlq]")
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="The topic to send to. [each message's original topic]")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only messages with this tag; repeatable.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="Only messages with this key; repeatable.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only messages originally sent to this topic.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only messages stored at or after a time, or a time ago (-2h).")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only messages stored before a time.")] = None,
    text: Annotated[str | None, typer.Option(help="Only messages whose body contains this text.")] = None,
    limit: Annotated[int | None, typer.Option(help="Maximum number of messages.", min=1)] = None,
    rate: Annotated[
        float | None, typer.Option(help="Maximum messages per second; 0 for no limit.", min=0)
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="A TOML file with groups to replay regularly, and filters for each.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Repeat after this pause (10m), with new messages only, until Ctrl-C.")
    ] = None,
    max_age: Annotated[str | None, typer.Option(help="Only messages not older than this (2d).")] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Send the messages. Without it the command only lists them.")
    ] = False,
    readable: Annotated[
        bool,
        typer.Option(
            "--make-readable", help="First give the group's topic read permission, even without --yes."
        ),
    ] = False,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Resend messages that a group's consumers could not process. A dry run unless --yes is given.

    First, their number by age, cause and tag is shown. The originals stay: a second run sends them again, but
    with --every or --policy only new ones. A resent message has the properties `replayOf`, the original's id,
    and `replays`, how often it was resent.
    """
    from pyspark_rocketmq.tools.replay import ReplayFilter, find_replays, make_readable

    if (group is None) == (policy is None):
        raise OptionError("give a group, or --policy with a file of them")
    if since is not None and max_age is not None:
        raise OptionError("give one of --since and --max-age")
    max_age_ms = None if max_age is None else _duration("--max-age", max_age)
    every_ms = None if every is None else _duration("--every", every)
    chosen = ReplayFilter(
        tags=frozenset(tag or ()), keys=frozenset(key or ()), topic=topic, text=text, limit=limit
    )
    if policy is not None and (chosen != ReplayFilter() or since or until or to or readable or origin):
        raise OptionError("--policy has the filters of each group: remove the others")
    origin = origin or Origin.DLQ
    regular = policy is not None or every_ms is not None
    if regular and (since or until):
        raise OptionError("--every continues by itself: give --max-age, not --since or --until")
    plan = _plan(policy, group, origin, to, chosen) if regular else None
    with connect(namesrv, option) as client:
        if readable and group is not None:
            make_readable(client, group, origin)
        if plan is not None:
            _repeat(client, _override(plan, every_ms, max_age_ms, rate), yes=yes, as_json=json)
            return
        now_ms = client.clock.now_ms()
        chosen = changed(
            chosen,
            since_ms=_since(since, max_age_ms, now_ms),
            until_ms=None if until is None else moment("--until", until, now_ms),
        )
        found = find_replays(client, str(group), origin, chosen, to=to)
        _once(client, found, now_ms, rate=rate or 0, yes=yes, as_json=json)


def _once(client: Client, found: list[Replay], now_ms: int, *, rate: float, yes: bool, as_json: bool) -> None:
    """Show the messages, and send them."""
    from pyspark_rocketmq.tools.dead_letters.summary import summarize
    from pyspark_rocketmq.tools.replay import send_replays

    summary = summarize((each.message for each in found), now_ms)
    if not as_json:
        _show(found, summary)
    with tell_sent() as done:
        for _ in send_replays(client, found, rate=rate) if yes else ():
            done.messages += 1
    sent = done.messages
    if as_json:
        messages = [_plain(each) for each in found]
        print_json({"found": len(found), "sent": sent, "summary": summary, "messages": messages})
        return
    said = f"{sent:,} messages sent" if yes else f"{len(found):,} messages to send: send them with --yes"
    console().print(said)


def _plan(
    policy: str | None, group: str | None, origin: Origin, to: str | None, chosen: ReplayFilter
) -> ReplayPolicy:
    from pyspark_rocketmq.tools.dead_letters.policy import ReplayPolicy, ReplayRule, read_policy

    if policy is not None:
        return read_policy(policy)
    assert group is not None
    return ReplayPolicy((ReplayRule(group=group, origin=origin, to=to, chosen=chosen),), None)


def _override(
    policy: ReplayPolicy, every_ms: int | None, max_age_ms: int | None, rate: float | None
) -> ReplayPolicy:
    """Return the policy with what the command line gives for all its rules."""
    rules = [
        changed(
            rule,
            max_age_ms=rule.max_age_ms if max_age_ms is None else max_age_ms,
            rate=rule.rate if rate is None else rate,
        )
        for rule in policy.rules
    ]
    return changed(policy, rules=tuple(rules), every_ms=policy.every_ms if every_ms is None else every_ms)


def _repeat(client: Client, policy: ReplayPolicy, *, yes: bool, as_json: bool) -> None:
    """Run every rule, once or until Ctrl-C. When it repeats, it prints errors and continues."""
    repeats = yes and policy.every_ms is not None
    while True:
        for rule in policy.rules:
            try:
                _run(client, rule, yes=yes, as_json=as_json)
            except RocketMQError as error:
                if not repeats:
                    raise
                print(f"error: {rule.group}: {error}", file=sys.stderr, flush=True)
        if not repeats:
            return
        assert policy.every_ms is not None
        client.clock.sleep(policy.every_ms / 1000)


def _run(client: Client, rule: ReplayRule, *, yes: bool, as_json: bool) -> None:
    """Run one rule; print a line of it, with the summary."""
    from pyspark_rocketmq.tools.dead_letters.regular import find_new_replays, send_new_replays

    now_ms = client.clock.now_ms()
    found = find_new_replays(client, rule, now_ms)
    summary = found.summary(now_ms)
    if not as_json:
        said = f"{timestamp(now_ms)} {rule.group}: {len(found.replays):,} messages{_words(summary)}"
        console().print(said, markup=False)
    sent = send_new_replays(client, found) if yes else 0
    if as_json:
        print_json({"group": rule.group, "found": len(found.replays), "sent": sent, "summary": summary})
    elif found.replays:
        console().print(f"  {sent:,} messages sent" if yes else "  send them with --yes")


def _words(summary: DeadLetterSummary) -> str:
    parts = [
        f"{count:,} {name}" for counts in (summary.ages, summary.causes) for name, count in _most(counts)
    ]
    parts += [f"{count:,} with tag {name}" for name, count in _most(summary.tags) if name]
    return f" ({', '.join(parts)})" if parts else ""


def _show(found: Sequence[Replay], summary: DeadLetterSummary) -> None:
    print_table(
        ("Stored", "To", "Tag", "Keys", "Redelivered", "Body"),
        [
            (
                timestamp(each.message.store_timestamp),
                each.topic,
                each.message.tags,
                each.message.keys,
                each.message.reconsume_times,
                message_text(each.message.body)[:_BODY_CHARACTERS],
            )
            for each in found[:_SHOWN]
        ],
    )
    if len(found) > _SHOWN:
        console().print(f"and {len(found) - _SHOWN:,} more")
    if found:
        kinds = (("age", summary.ages), ("cause", summary.causes), ("tag", summary.tags))
        print_table(
            ("By", "Value", "Messages"),
            [(kind, name or "none", count) for kind, counts in kinds for name, count in _most(counts)],
        )


def _most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the first of the counts, and the sum of the others: a cause is any text."""
    all_counts = list(counts.items())
    others = sum(count for _, count in all_counts[_SHOWN:])
    return all_counts[:_SHOWN] + ([("others", others)] if others else [])


def _since(since: str | None, max_age_ms: int | None, now_ms: int) -> int | None:
    if max_age_ms is not None:
        return now_ms - max_age_ms
    return None if since is None else moment("--since", since, now_ms)


def _duration(name: str, text: str) -> int:
    from pyspark_rocketmq.options.text.kinds import parse_duration_ms

    try:
        found = parse_duration_ms(text)
    except ValueError:
        found = 0
    if found <= 0:
        raise OptionError(f"{name} takes a duration, such as 10m, 36h or 7d", given=text)
    return found


def _plain(each: Replay) -> dict[str, Any]:
    message = each.message
    return {"msgId": message.msg_id, "to": each.topic, "tags": message.tags, "keys": message.keys}
