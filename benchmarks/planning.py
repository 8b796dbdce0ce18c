"""The cost of planning a micro-batch with many queues: latestOffset and partitions.

The brokers are separate processes. ``cpu`` is the CPU time of the planning process, which runs only our code.
``wall`` includes the brokers' responses and the machine's other load.

    python -m benchmarks.planning                 # a mock RocketMQ: for the CPU
    python -m benchmarks.planning --real          # three real brokers
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe

from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_rocketmq.client import Client, OutgoingMessage, Producer
from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader
from pyspark_rocketmq.testing import MockCluster

BROKERS = ("broker-a", "broker-b", "broker-c")
TARGET_MS = 300

CASES: dict[str, dict[str, str]] = {
    "all limits off": {"maxOffsetsPerTrigger": "-1"},
    "maxOffsetsPerTrigger": {"maxOffsetsPerTrigger": "5000"},
    "maxBytesPerTrigger": {"maxBytesPerTrigger": "1m"},
    "eventTimeAlignment": {"maxOffsetsPerTrigger": "5000", "eventTimeAlignment": "store"},
}


def mock(pipe: Pipe) -> None:
    """Run a mock RocketMQ until the other end stops it."""
    with MockCluster(brokers=BROKERS) as cluster:
        pipe.send(cluster.name_server)
        pipe.recv()


@contextmanager
def name_server(*, real: bool) -> Iterator[str]:
    if real:
        with DevCluster(brokers=len(BROKERS)) as cluster:
            yield cluster.name_server
        return
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=mock, args=(there,))
    process.start()
    try:
        yield here.recv()
    finally:
        here.send(None)
        process.join(10)


def fill(address: str, topic: str, queues: int, messages: int) -> int:
    """Create the topic with at least this many queues over all brokers, and some messages in each."""
    with Client(address) as client:
        Admin(client).create_topic(topic, queues=-(-queues // len(BROKERS)))
        producer = Producer(client)
        for queue in client.write_queues(topic):
            producer.send_batch([OutgoingMessage(topic, b"x" * 200)] * messages, queue)
        return len(client.read_queues(topic))


def measure(call: Callable[[], object], rounds: int) -> dict[str, float]:
    call()  # connections, routes
    walls, cpus = [], []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        walls.append((time.perf_counter() - wall) * 1000)
        cpus.append((time.process_time() - cpu) * 1000)
    return {
        "wall_ms": round(statistics.median(walls), 1),
        "wall_ms_best": round(min(walls), 1),
        "cpu_ms": round(statistics.median(cpus), 1),
    }


def plan(address: str, topic: str, options: dict[str, str], rounds: int) -> dict[str, float]:
    given = {"nameServer": address, "topic": topic, "startingOffsets": "earliest"} | options
    reader = RocketMQStreamReader(
        parse_options(SourceOptions, given, where="readStream", environ={}), read_schema(None)
    )
    start = reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))
    limit = reader.getDefaultReadLimit()

    def micro_batch() -> None:
        # JSON, as Spark passes offsets.
        end = json.loads(json.dumps(reader.latestOffset(json.loads(json.dumps(start)), limit)))
        assert reader.partitions(json.loads(json.dumps(start)), end)

    try:
        return measure(micro_batch, rounds)
    finally:
        reader.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", action="store_true", help="three real brokers instead of mock ones")
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--messages", type=int, default=20, help="in each queue")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    with name_server(real=args.real) as address:
        queues = fill(address, "planned", args.queues, args.messages)
        print(f"{queues} queues over {len(BROKERS)} {'real' if args.real else 'mock'} brokers")
        for name, options in CASES.items():
            print(f"  {name:22}", plan(address, "planned", options, args.rounds))
    print(f"target: less than {TARGET_MS} ms of our code")


if __name__ == "__main__":
    main()
