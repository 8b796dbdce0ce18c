"""Collects a support bundle. Nothing is changed anywhere, and no message is read for its content."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark_rocketmq._version import __version__
from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.groups.group_lag import stored_ranges
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.options import ClientOptions, option_values
from pyspark_rocketmq.tools.bundle.archive import BundleArchive, BundleFile
from pyspark_rocketmq.tools.bundle.facts import broker_facts, machine_facts, option_facts, route_facts
from pyspark_rocketmq.tools.bundle.query_events import recent_events
from pyspark_rocketmq.tools.doctor import examine
from pyspark_rocketmq.tools.exporter.measurement import ClusterMeter, GroupState
from pyspark_rocketmq.tools.findings import Finding
from pyspark_rocketmq.tools.machine import examine_machine, package_versions

__all__ = ["BundleScope", "write_bundle"]

_TIMEOUT_MS: Final = 5_000
_RECENT_MS: Final = 3_600_000
_MOST_TOPICS: Final = 500
_SECRET_NAMES: Final = re.compile(
    r"SECRET|PASSW|PASSPHRASE|CREDENTIAL|(?:TOKEN|KEY)(?:_|$)|(?:^|_)PASS(?:_|$)|_PWD$", re.IGNORECASE
)
_SECRET_PARTS: Final = re.compile(
    r"://[^/?#\s:@]*:(?P<url>[^/\s]+)@|(?:password|secret|token)\w*=(?P<setting>[^&;,\s\"']+)", re.IGNORECASE
)
"""Passwords of URLs, and settings as in ``PYSPARK_SUBMIT_ARGS``, within the values of other variables."""

_SHORTEST_SECRET: Final = 6
"""Shorter values of the environment's variables are no secrets, but parts of other words."""

_WIRE_LINE: Final = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]+[+-]\d\d:\d\d) \S+:\d+ [→←] #\d+ [A-Z_]\w*\b.*")
"""What ``wireLog`` writes; other lines of the file may have anything in them."""

_LEFT_OUT: Final = (
    "bodies, keys and properties of messages; secrets; descriptions of sources and sinks, observed metrics "
    "and texts of foreign errors in query logs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleScope:
    """What a bundle is about.

    Parameters
    ----------
    topics, groups : tuple of str
        Empty: all of them.
    query_log : Path, optional
        The folder of a session's `QueryLog`.
    wire_log : Path, optional
        A file that has the wire log of a program among other lines.
    """

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    query_log: Path | None = None
    wire_log: Path | None = None


def write_bundle(
    path: Path,
    options: ClientOptions | None,
    scope: BundleScope,
    *,
    environ: Mapping[str, str],
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[BundleFile, ...]:
    """Write a bundle, and return its files. What cannot be found out is an error's text in its file.

    Parameters
    ----------
    path : Path
        A zip file that does not exist.
    options : ClientOptions, optional
        How to connect; None: without a cluster.
    scope : BundleScope
    environ : mapping
        The environment, whose secrets must not be in the bundle.
    clock : Clock

    Raises
    ------
    OptionError
        The file exists, or cannot be written.
    """
    since_ms = clock.now_ms() - _RECENT_MS
    with BundleArchive(path, _secrets(options, environ)) as archive:
        versions = {"machine": machine_facts(), "packages": package_versions()}
        archive.add("versions.json", "versions of this machine's software", versions)
        findings = examine_machine(environ)
        if options is not None:
            with _wire_log(options) as lines:
                findings += examine(options, clock=clock)
                _add_cluster(archive, options, scope, clock)
            if options.wire_log:
                archive.add_lines("wire.log", "the requests of this bundle, as wireLog prints them", lines())
        archive.add("doctor.json", "the findings of doctor", [_plain(finding) for finding in findings])
        if scope.query_log is not None:
            _add_query_log(archive, scope.query_log, since_ms)
        if scope.wire_log is not None:
            _add_wire_log(archive, scope.wire_log, since_ms)
        archive.finish(
            created=datetime.fromtimestamp(clock.now_ms() / 1000, UTC).isoformat(timespec="seconds"),
            version=__version__,
            topics=scope.topics or f"all, at most {_MOST_TOPICS}",
            groups=scope.groups or "all",
            leftOut=_LEFT_OUT,
        )
        return archive.files


def _secrets(options: ClientOptions | None, environ: Mapping[str, str]) -> set[str]:
    known = {value for name, value in environ.items() if _SECRET_NAMES.search(name)}
    parts = (found for value in environ.values() for found in _SECRET_PARTS.finditer(value))
    known |= {found["url"] or found["setting"] for found in parts}
    known = {value for value in known if len(value) >= _SHORTEST_SECRET}
    if options is not None:
        known |= {str(value) for declared, value in option_values(options) if declared.secret and value}
    return known


def _add_cluster(archive: BundleArchive, options: ClientOptions, scope: BundleScope, clock: Clock) -> None:
    away: dict[str, str] = {}
    archive.add("options.json", "the client's options", option_facts(options))
    with Client(options, operation_timeout_ms=_TIMEOUT_MS, clock=clock) as client:
        admin = Admin(client)
        archive.add("brokers.json", "brokers, their versions and addresses", broker_facts(client))

        def on_away(name: str, cause: RocketMQError) -> None:
            away.setdefault(name, cause.message)

        def topics() -> Sequence[str]:
            return scope.topics or admin.topics()[:_MOST_TOPICS]

        def offsets() -> dict[str, Any]:
            stored = stored_ranges(client, topics(), on_away=on_away)
            return {
                topic: {
                    f"{each.queue.broker_name}:{each.queue.queue_id}": [each.from_offset, each.until_offset]
                    for each in ranges
                }
                for topic, ranges in stored.items()
            }

        archive.add("routes.json", "queues and permissions", _try(lambda: route_facts(client, topics())))
        archive.add("offsets.json", "first and next offset of each queue", _try(offsets))
    with contextlib.closing(ClusterMeter(options, scope.groups or None, clock=clock)) as meter:
        state = meter.state()
    away |= {name: away.get(name, "does not answer") for name, up in state.brokers.items() if not up}
    groups = {group.group: _group(group) for group in state.groups}
    archive.add("lag.json", "positions, lag and dead letters of groups", {"groups": groups, "away": away})


def _group(group: GroupState) -> dict[str, Any]:
    return {
        "queues": [
            {
                "topic": each.at.queue.topic,
                "brokerName": each.at.queue.broker_name,
                "queueId": each.at.queue.queue_id,
                "committed": each.at.committed,
                "minOffset": each.at.min_offset,
                "maxOffset": each.at.max_offset,
                "lag": each.at.lag,
                "seconds": each.seconds,
            }
            for each in group.queues
        ],
        "deadLetters": None if group.dead_letters is None else asdict(group.dead_letters),
    }


def _add_query_log(archive: BundleArchive, folder: Path, since_ms: int) -> None:
    files = sorted({*folder.glob("*.jsonl"), *folder.glob("*.jsonl.old")})
    for file in files:
        try:
            events = list(recent_events(file, since_ms))
        except OSError as error:
            events = [{"error": str(error)}]
        if events:
            archive.add_lines(f"query-log/{file.name}", "the last hour of a query's log", events)


def _add_wire_log(archive: BundleArchive, file: Path, since_ms: int) -> None:
    def lines() -> Iterator[str]:
        try:
            with file.open(encoding="utf-8", errors="replace") as texts:
                for text in texts:
                    found = _WIRE_LINE.fullmatch(text.rstrip("\n"))
                    if found and _time_ms(found[1]) >= since_ms:
                        yield found[0]
        except OSError as error:
            yield f"error: {error}"

    archive.add_lines("program-wire.log", "the last hour of a program's wire log", lines())


def _time_ms(text: str) -> float:
    """Return the time of a line, 0 for one that is no time: a file of other lines may have anything."""
    try:
        return datetime.fromisoformat(text).timestamp() * 1000
    except ValueError:
        return 0


@contextlib.contextmanager
def _wire_log(options: ClientOptions) -> Iterator[Callable[[], list[str]]]:
    """Catch what ``wireLog`` prints meanwhile."""
    if not options.wire_log:
        yield list
        return
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        yield lambda: [line for line in text.getvalue().splitlines() if _WIRE_LINE.fullmatch(line)]


def _try(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return ask()
    except RocketMQError as error:
        return {"error": str(error)}


def _plain(finding: Finding) -> dict[str, str]:
    return {**asdict(finding), "verdict": finding.verdict.value}
