"""Read throughput of RDDs, direct streams and receivers, compared with our structured source.

``python -m benchmarks.dstream`` starts a broker, fills a topic, and measures all contenders in turn. Each
reads the whole topic and sums the lengths of all bodies, in ``local[2]``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks.arguments import add_arguments, plan_of
from benchmarks.contender import Contender, python_command
from benchmarks.harness import run
from benchmarks.processes import machine_facts
from benchmarks.report import Report
from benchmarks.topics import Bench, Case, bench

BASELINE = "spark-stream"


def contenders(mq: Bench, case: Case) -> dict[str, Contender]:
    """Return all contenders that can read the case's topic, by name."""
    place = (mq.name_server, case.topic)

    def rdds(name: str, what: str, elements: str, about: str) -> Contender:
        return Contender(name, [python_command("spark_rdd", *place, what, elements)], about, warm_ups=2)

    every = [
        Contender(
            BASELINE,
            [python_command("spark_stream", *place)],
            "our structured stream under AvailableNow, body only, a checkpoint of its own",
            warm_ups=2,
        ),
        Contender(
            "spark", [python_command("spark", *place)], "our structured batch read, body only", warm_ups=2
        ),
        rdds("direct-batches", "direct", "batches", "direct stream, recordBatches(['body'])"),
        rdds("direct-messages", "direct", "messages", "direct stream, rdd.map(lambda message: ...)"),
        rdds("receiver-messages", "receiver", "messages", "one receiver, blocks in memory and on disk"),
        rdds("reliable-messages", "reliable", "messages", "one receiver with a write-ahead log"),
        rdds("reliable-batches", "reliable", "batches", "the same, recordBatches(['body'])"),
        rdds("rdd-batches", "rdd", "batches", "createRDD(...).recordBatches(['body'])"),
        rdds("rdd-messages", "rdd", "messages", "createRDD(...).map(lambda message: ...)"),
        rdds("rdd-handler", "rdd", "handler", "createRDD(..., messageHandler=...)"),
    ]
    return {each.name: each for each in every}


def main() -> None:
    """Parse the arguments and run one case."""
    args = _arguments()
    console = Console(width=150)
    begin = time.monotonic()
    case = Case(messages=args.messages, body_bytes=args.body_bytes, queues=args.queues)
    with ExitStack() as stack:
        mq = stack.enter_context(bench())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        console.print(f"filling {case.topic}")
        mq.fill(case)
        every = contenders(mq, case)
        chosen = (
            [every[name] for name in args.contenders.split(",")] if args.contenders else [*every.values()]
        )
        results = run(
            chosen,
            plan_of(args, time.monotonic() - begin),
            broker_pids=mq.broker_pids,
            expected=case.messages,
            log_dir=folder,
            say=lambda line: console.print(f"{time.monotonic() - begin:5.0f} s  {line}", highlight=False),
        )
        facts = {**machine_facts(), **asdict(case), "broker": f"{mq.cluster.version} default limits"}
    report = Report(
        f"dstream-{case.messages}x{case.body_bytes}-q{case.queues}",
        f"Reading {case.messages:,} messages of {case.body_bytes} bytes in {case.queues} queues as RDDs",
        contenders=chosen,
        results=results,
        facts=facts,
        baseline=BASELINE if BASELINE in {each.name for each in chosen} else chosen[0].name,
    )
    report.print(console)
    for file in report.write(args.results):
        console.print(f"wrote {file}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, contenders="", messages=1_000_000, rounds=3, spare_rounds=5, time_limit_s=900)
    return parser.parse_args()


if __name__ == "__main__":
    main()
