"""Write throughput of a Spark job: our sink, compared with the Java producer and Spark's Kafka sink.

``python -m benchmarks.write`` starts a RocketMQ and a Kafka, and measures all contenders in turn. Every round
appends to the same topic. RocketMQ deletes full log files continuously, so that the disk does not fill up.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.arguments import add_arguments, plan_of
from benchmarks.contender import Contender, python_command
from benchmarks.harness import run
from benchmarks.kafka import Kafka, kafka, spark_arguments
from benchmarks.processes import machine_facts
from benchmarks.report import Report
from benchmarks.topics import Bench, bench
from pyspark_rocketmq.client import Admin, Client

BASELINE = "java-send"
TOPIC = "bench-write"

_FORGETFUL = {"fileReservedTime": "0", "deleteWhen": ";".join(f"{hour:02}" for hour in range(24))}
"""Nobody reads the written messages again, except in `_READ_AGAIN`."""

_READ_AGAIN = {"spark-transactional", "spark-staged"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The messages that a round writes."""

    messages: int = 2_000_000
    body_bytes: int = 1024
    queues: int = 4


def contenders(
    mq: Bench, log: Kafka | None, case: Case, batch_bytes: int, folder: Path
) -> dict[str, Contender]:
    """Return all contenders that can write the case, by name."""

    def spark(name: str, about: str, *args: str) -> Contender:
        sizes = ("--messages", str(case.messages), "--body-bytes", str(case.body_bytes))
        return Contender(name, [python_command("spark_write", *args, *sizes)], about, warm_ups=2)

    every = [
        Contender(
            BASELINE,
            [
                mq.java_command(
                    "SendLoop", TOPIC, str(case.messages), str(case.body_bytes), str(batch_bytes), "16"
                )
            ],
            f"Java DefaultMQProducer, batches of {batch_bytes >> 10} KiB, asynchronous, 16 in flight",
            warm_ups=2,
        ),
        spark("spark", "our Spark sink, local[2], default options", "rocketmq", mq.name_server, TOPIC),
        spark(
            "spark-once",
            "our Spark sink with write ids made of the rows' content",
            *("rocketmq", mq.name_server, TOPIC),
            *("--option", "deliveryGuarantee=effectively-once", "--option", "jobId=bench"),
        ),
        spark(
            "spark-singles",
            "our Spark sink, each message alone, as many in flight as a transactional write has",
            *("rocketmq", mq.name_server, TOPIC),
            *("--option", "batchSize=1", "--option", "sendsInFlight=128"),
        ),
        spark(
            "spark-transactional",
            "our Spark sink with a transaction, until the last message is visible",
            *("rocketmq", mq.name_server, TOPIC),
            *("--option", "deliveryGuarantee=transactional", "--option", "jobId={round}"),
            *("--option", f"transactionLog={folder}/transactions"),
        ),
        spark(
            "spark-committed",
            "our Spark sink with a transaction that is committed by ranges",
            *("rocketmq", mq.name_server, TOPIC),
            *("--option", "deliveryGuarantee=transactional", "--option", "jobId={round}"),
            *("--option", "transactionVisibility=committed"),
        ),
        spark(
            "spark-staged",
            "our Spark sink with a transaction, by a staging topic, until the last message is visible",
            *("rocketmq", mq.name_server, TOPIC),
            *("--option", "deliveryGuarantee=transactional", "--option", "jobId={round}"),
            *("--option", "transactionVisibility=staged"),
        ),
        spark(
            "blank",
            "the same rows into a Python sink that does nothing: Spark's part of ours",
            "blank",
            "-",
            "-",
        ),
        spark("noop", "the same rows into Spark's noop sink: what making them costs", "noop", "-", "-"),
    ]
    if log is not None:
        about = "Spark's Kafka sink, local[2], default options"
        every.append(spark("spark-kafka", about, "kafka", log.servers, TOPIC, *spark_arguments()))
    return {each.name: each for each in every}


def main() -> None:
    """Parse the arguments and run one case."""
    args = _arguments()
    console = Console(width=150)
    begin = time.monotonic()
    case = Case(messages=args.messages, body_bytes=args.body_bytes, queues=args.queues)
    names = args.contenders.split(",")
    with ExitStack() as stack:
        mq = stack.enter_context(bench({} if _READ_AGAIN & {*names} else _FORGETFUL))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        with Client(mq.name_server) as client:
            Admin(client).create_topic(TOPIC, queues=case.queues)
            Admin(client).create_topic(f"{TOPIC}-commits", queues=1)
            Admin(client).create_topic(f"{TOPIC}-staging", queues=case.queues)
            Admin(client).create_topic(f"{TOPIC}-staging-commits", queues=1)
        log = None
        if "spark-kafka" in names:
            log = stack.enter_context(kafka(folder, partitions=case.queues))
        every = contenders(mq, log, case, args.batch_bytes, folder)
        chosen = [every[name] for name in names]
        results = run(
            chosen,
            plan_of(args, time.monotonic() - begin),
            broker_pids=lambda: [*mq.broker_pids(), *(log.pids() if log is not None else [])],
            expected=case.messages,
            log_dir=folder,
            say=lambda line: console.print(f"{time.monotonic() - begin:5.0f} s  {line}", highlight=False),
        )
        facts = {**machine_facts(), **asdict(case), "broker": f"{mq.cluster.version} default limits"}
    report = Report(
        f"write-{case.messages}x{case.body_bytes}-q{case.queues}",
        f"Writing {case.messages:,} messages of {case.body_bytes} bytes to {case.queues} queues",
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
    add_arguments(parser, contenders="java-send,spark,spark-kafka,blank,noop")
    parser.add_argument("--batch-bytes", type=int, default=256 * 1024, help="of the Java producer's batches")
    return parser.parse_args()


if __name__ == "__main__":
    main()
