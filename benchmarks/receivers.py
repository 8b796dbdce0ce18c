"""How much several receivers read, compared with the direct stream on the same topic.

``python -m benchmarks.receivers`` starts a broker, fills a topic, and times a direct stream and 1, 2 and 4
receivers in turn, in ``local[8]`` (a receiver occupies a core of Spark's for as long as it runs). The limit
is what passes between the first and the last batch. It does not contain the start of the receivers.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.arguments import add_arguments, plan_of
from benchmarks.contender import Contender, python_command
from benchmarks.harness import Results, run
from benchmarks.processes import machine_facts
from benchmarks.report import Report
from benchmarks.topics import Case, bench

DIRECT = "direct"
RECEIVERS = (1, 2, 4)
CORES = 8


def contenders(name_server: str, topic: str) -> list[Contender]:
    """Return the direct stream and each number of receivers."""

    def command(what: str, *more: str) -> tuple[str, ...]:
        return python_command("spark_rdd", name_server, topic, what, "batches", f"--cores={CORES}", *more)

    direct = Contender(DIRECT, [command("direct")], "direct stream, recordBatches(['body'])")
    return [direct] + [
        Contender(
            f"receivers-{count}",
            [command("receiver", f"--receivers={count}")],
            f"{count} plain receivers, recordBatches(['body'])",
        )
        for count in RECEIVERS
    ]


def main() -> None:
    """Read the topic in each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, contenders="", messages=500_000, rounds=3, spare_rounds=2, time_limit_s=180)
    args = parser.parse_args()
    console = Console(width=150)
    begin = time.monotonic()
    case = Case(messages=args.messages, body_bytes=args.body_bytes, queues=args.queues)
    with bench() as mq, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        mq.fill(case)
        every = contenders(mq.name_server, case.topic)
        names = args.contenders.split(",") if args.contenders else [each.name for each in every]
        chosen = [each for each in every if each.name in names]
        results = run(
            chosen,
            plan_of(args, time.monotonic() - begin),
            broker_pids=mq.broker_pids,
            expected=case.messages,
            log_dir=Path(folder),
            say=lambda line: console.print(f"{time.monotonic() - begin:5.0f} s  {line}", highlight=False),
        )
    report = Report(
        "receivers",
        f"{case.messages:,} messages of {case.body_bytes} bytes in {case.queues} queues, local[{CORES}]",
        contenders=chosen,
        results=results,
        facts={**machine_facts(), **asdict(case)},
        baseline=DIRECT if DIRECT in names else names[0],
    )
    report.print(console)
    console.print(_steady(chosen, results))
    for file in report.write(args.results):
        console.print(f"wrote {file}")


def _steady(chosen: list[Contender], results: Results) -> Table:
    table = Table(title="between the first and the last batch; the direct stream: its one batch")
    for head in ("contender", "k msg/s (min-max)", "MB/s"):
        table.add_column(head, justify="left" if head == "contender" else "right")
    for contender in chosen:
        rounds = results.of(contender.name)
        if not rounds:
            continue
        rates = sorted(_rate(each.extra["steady_rate"]) for each in rounds)
        median = statistics.median(rates)
        size = rounds[0].bytes / rounds[0].messages
        table.add_row(
            contender.name,
            f"{median / 1e3:.0f} ({rates[0] / 1e3:.0f}-{rates[-1] / 1e3:.0f})",
            f"{median * size / 1e6:.0f}",
        )
    return table


def _rate(answers: object) -> float:
    assert isinstance(answers, list)  # one for each process of the contender
    return float(sum(answers))


if __name__ == "__main__":
    main()
