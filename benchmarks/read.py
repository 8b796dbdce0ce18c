"""Read throughput: our client and our Spark source, compared with the Java clients and the bare socket.

``python -m benchmarks.read`` starts a broker, fills a topic, and measures all contenders in turn.
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
from benchmarks.cold import make_cold
from benchmarks.contender import Contender, call, python_command
from benchmarks.harness import run
from benchmarks.kafka import CONNECTOR, Kafka, kafka, spark_arguments
from benchmarks.processes import machine_facts
from benchmarks.report import Report
from benchmarks.topics import Bench, Case, bench

BASELINE = "java-pull"
KAFKA = "spark-kafka"


def contenders(mq: Bench, log: Kafka | None, case: Case) -> dict[str, Contender]:
    """Return all contenders that can read the case's topic, by name. Kafka's source needs a Kafka."""
    place = (mq.name_server, case.topic)
    every = [
        Contender(
            "drain", [python_command("drain", *place)], "the same pulls over a bare socket, nothing decoded"
        ),
        Contender(
            "drain-binary",
            [python_command("drain", *place, "--serializer", "ROCKETMQ")],
            "the same with headers in RocketMQ's binary form instead of JSON",
        ),
        Contender("client", [python_command("client", *place)], "our client alone, body only, one process"),
        Contender(
            "client-2p",
            [python_command("client", *place, "--share", f"{number}/2") for number in range(2)],
            "our client alone, body only, two processes with half of the queues each",
        ),
        Contender(
            "spark",
            [python_command("spark", *place)],
            "our Spark batch read, body only, local[2]",
            warm_ups=3,
        ),
        Contender(
            "spark-default",
            [python_command("spark", *place, "--columns", "default")],
            "our Spark batch read with the ten default columns",
            warm_ups=3,
        ),
        Contender(
            "spark-properties",
            [python_command("spark", *place, "--columns", "default", "--option", "includeProperties=true")],
            "our Spark batch read with the default columns and the properties map",
            warm_ups=3,
        ),
        Contender(
            "spark-json",
            [python_command("spark", *place, "--json")],
            "our Spark batch read whose bodies are parsed by Spark's from_json",
            warm_ups=3,
        ),
        Contender(
            "spark-rare",
            [python_command("spark", *place, "--option", "tags=rare")],
            "our Spark batch read, body only, of the one message in a hundred that has a certain tag",
            warm_ups=3,
            keeps=0.01,
        ),
        Contender(
            "spark-stream",
            [python_command("spark_stream", *place)],
            "our Spark stream under AvailableNow, body only, no limit, a checkpoint of its own",
            warm_ups=3,
        ),
        Contender(
            BASELINE,
            [mq.java_command("PullLoop", case.topic)],
            "Java DefaultMQPullConsumer, 32 a pull, a thread a queue",
            warm_ups=2,
        ),
        Contender(
            "java-lite",
            [mq.java_command("LitePullLoop", case.topic)],
            "Java DefaultLitePullConsumer, 32 a pull",
        ),
    ]
    if log is not None:
        command = ("spark_kafka", log.servers, case.topic, *spark_arguments())
        about = f"Spark's Kafka source ({CONNECTOR}), local[2], the same keys, bodies and headers"
        every += [
            Contender(KAFKA, [python_command(*command)], about, warm_ups=3),
            Contender(
                f"{KAFKA}-json",
                [python_command(*command, "--json")],
                f"{about}; parsed likewise",
                warm_ups=3,
            ),
        ]
    return {each.name: each for each in every}


def main() -> None:
    """Parse the arguments and run one case."""
    args = _arguments()
    console = Console(width=150)
    begin = time.monotonic()
    case = Case(
        messages=args.messages, body_bytes=args.body_bytes, queues=args.queues, compression=args.compression
    )
    settings = dict(pair.partition("=")[::2] for pair in args.broker_config)
    names = args.contenders.split(",")
    with ExitStack() as stack:
        mq = stack.enter_context(bench(settings))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        log = (
            stack.enter_context(kafka(folder, partitions=case.queues))
            if any(name.startswith(KAFKA) for name in names)
            else None
        )
        console.print(f"filling {case.topic}")
        mq.fill(case)
        if log is not None:
            console.print("copying it to Kafka")
            call(python_command("kafka_copy", mq.name_server, log.servers, case.topic, *spark_arguments()))
        filled = time.monotonic()
        console.print(f"filled in {filled - begin:.0f} s")
        every = contenders(mq, log, case)
        chosen = [every[name] for name in names]
        plan = plan_of(args, filled - begin)
        results = run(
            chosen,
            plan,
            broker_pids=lambda: [*mq.broker_pids(), *(log.pids() if log is not None else [])],
            expected=case.messages,
            log_dir=folder,
            say=lambda line: console.print(f"{time.monotonic() - begin:5.0f} s  {line}", highlight=False),
            before_round=(lambda: make_cold(mq.cluster)) if args.cold else lambda: None,
        )
        facts = {
            **machine_facts(),
            **asdict(case),
            "data": "cold" if args.cold else "in the page cache",
            "broker": f"{mq.cluster.version} {settings or 'default limits'}",
        }
    kind = ("-cold" if args.cold else "") + ("-settings" if settings else "")
    kind += f"-{args.name}" if args.name else ""
    report = Report(
        f"read-{case.topic.removeprefix('bench-')}{kind}",
        f"Reading {case.messages:,} messages of {case.body_bytes} bytes from {case.queues} queues",
        contenders=chosen,
        results=results,
        facts=facts,
        baseline=BASELINE if BASELINE in names else names[0],
    )
    report.print(console)
    for file in report.write(args.results):
        console.print(f"wrote {file}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, contenders="drain,client,client-2p,spark,java-pull,spark-kafka")
    parser.add_argument("--name", default="", help="what to add to the names of the files")
    parser.add_argument("--compression", default="none", choices=("none", "zlib", "lz4", "zstd"))
    parser.add_argument("--cold", action="store_true", help="nothing of the broker's files in memory")
    parser.add_argument(
        "--broker-config", action="append", default=[], help="name=value of the broker's settings"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
