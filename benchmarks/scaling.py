"""How reading scales with queues, brokers and partitions: the same messages in different layouts.

``python -m benchmarks.scaling`` starts three brokers, fills one topic per layout, and reads them in turn.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from benchmarks.arguments import add_arguments, plan_of
from benchmarks.contender import Contender, python_command
from benchmarks.harness import run
from benchmarks.processes import machine_facts
from benchmarks.report import Report
from benchmarks.topics import Bench, Case, bench

BROKERS = 3
QUEUES = (1, 4, 16, 64)
PARTITIONS = (4, 16, 100, 1_000)


def contenders(mq: Bench, base: Case) -> Iterator[tuple[Case, Contender]]:
    """Return every layout and how to read it."""
    layouts = [replace(base, queues=queues) for queues in QUEUES]
    layouts += [replace(base, brokers=brokers) for brokers in range(2, BROKERS + 1)]
    for case in layouts:
        where = f"{case.queues} queues on each of {case.brokers} brokers"
        name = f"client q{case.queues} b{case.brokers}"
        yield (
            case,
            Contender(name, [python_command("client", mq.name_server, case.topic)], f"client: {where}"),
        )
    for count in PARTITIONS:
        limit = ("--option", f"maxRecordsPerPartition={-(-base.messages // count)}")
        command = python_command("spark", mq.name_server, base.topic, *limit)
        about = f"Spark, body only, {base.queues} queues in {count} partitions"
        warm_ups = 3 if count < PARTITIONS[-1] else 1  # which take half a minute each
        yield base, Contender(f"spark p{count}", [command], about, warm_ups=warm_ups)


def main() -> None:
    """Read every layout."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, contenders="", messages=500_000, rounds=3, time_limit_s=600)
    args = parser.parse_args()
    console = Console(width=150)
    begin = time.monotonic()
    base = Case(messages=args.messages, body_bytes=args.body_bytes, queues=args.queues)
    with bench(brokers=BROKERS) as mq, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        every = list(contenders(mq, base))
        for case, _ in every:
            mq.fill(case)
        filled = time.monotonic()
        console.print(f"filled in {filled - begin:.0f} s")
        names = args.contenders.split(",") if args.contenders else [each.name for _, each in every]
        chosen = [each for _, each in every if each.name in names]
        results = run(
            chosen,
            plan_of(args, filled - begin),
            broker_pids=mq.broker_pids,
            expected=base.messages,
            log_dir=Path(folder),
            say=lambda line: console.print(f"{time.monotonic() - begin:5.0f} s  {line}", highlight=False),
        )
    report = Report(
        "scaling",
        f"Reading {base.messages:,} messages of {base.body_bytes} bytes, laid out differently",
        contenders=chosen,
        results=results,
        facts={**machine_facts(), **asdict(base)},
        baseline="client q4 b1" if "client q4 b1" in names else names[0],
    )
    report.print(console)
    for file in report.write(args.results):
        console.print(f"wrote {file}")


if __name__ == "__main__":
    main()
