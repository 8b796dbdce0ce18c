"""CPU time of a writing task that sends each message alone, without Spark.

Run ``python -m benchmarks.singles`` (``--help`` shows the parameters). The broker is the mock in another
process: only the CPU time of the task counts. The figures are microseconds per message, median of several
rounds. Beside them is a loop that sends requests made before, some together, and waits for their responses.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.remoting.header import SendMessageRequest
from pyspark_rocketmq.remoting.template import Request, RequestTemplate, TemplatedRequest
from pyspark_rocketmq.spark.write.sink_schema import sink_layout
from pyspark_rocketmq.spark.write.transaction_log import TransactionName
from pyspark_rocketmq.spark.write.write_task import WriteScope, WriteTask
from pyspark_rocketmq.testing import MockCluster

_TOPICS: Final = {"few": 4, "many": 32}
_START_S: Final = 30
_ANSWER_MS: Final = 10_000


def main() -> None:
    """Measure each way in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", default=",".join(WAYS), help="comma list; all by default")
    args = parser.parse_args()
    ways = args.ways.split(",")
    times: dict[str, list[float]] = {way: [] for way in ways}
    with broker() as name_server:
        for turn in range(args.rounds + 1):
            for way in ways:
                begin = time.process_time()
                WAYS[way](name_server, args.messages)
                if turn:  # the first one only warms up
                    times[way].append((time.process_time() - begin) / args.messages * 1e6)
    for way in ways:
        found = times[way]
        print(f"{way:24} {statistics.median(found):6.1f} us ({min(found):.1f}-{max(found):.1f})")


@contextmanager
def broker() -> Iterator[str]:
    """Run the mock broker in another process, and return its address."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        if not ours.poll(_START_S):
            raise TimeoutError(f"the mock broker did not start in {_START_S} s")
        yield ours.recv()
    finally:
        ours.close()
        process.join(_START_S)


def _serve(pipe: Pipe) -> None:
    with MockCluster(_TOPICS) as cluster:
        pipe.send(cluster.name_server)
        try:
            pipe.recv()  # the parent closes it
        except EOFError:
            return


def _write(
    name_server: str, messages: int, column: str | None = None, given: Mapping[str, str] | None = None
) -> None:
    """Write rows with a body, and a column of sharding keys or delays."""
    rows: dict[str, pa.Array] = {"body": pa.array([b"x" * 1024] * messages)}
    if column == "shardingKey":
        rows[column] = pa.array([f"key-{number % 1000}" for number in range(messages)])
    elif column == "delayLevel":
        rows[column] = pa.array([3] * messages, pa.int32())
    batch = pa.RecordBatch.from_pydict(rows)
    settings = {
        "nameServer": name_server,
        "topic": "few",
        "batchSize": "1",
        "sendsInFlight": "128",
        **(given or {}),
    }
    options = parse_options(SinkOptions, settings, environ={})
    layout = sink_layout(from_arrow_schema(batch.schema), options)
    scope = WriteScope(job="benchmark/0", partition=0, transaction=TransactionName("benchmark"))
    with Client(options.client) as client:
        report = WriteTask(client, options, layout, scope).run([batch])
    if report.rows != messages or report.sends != messages:
        raise RuntimeError(f"{report.rows} rows were sent in {report.sends} requests, not {messages}")


def _bare(name_server: str, messages: int, together: int) -> None:
    """Send requests made before, some together, and wait for their responses."""
    with _prepared(name_server) as (client, connection, made):
        for _ in range(0, messages, together):
            deadline = client.deadline(_ANSWER_MS)
            opaques = connection.submit_all([made] * together, deadline=deadline)
            for opaque in opaques:
                connection.wait(opaque, deadline)


def _bare_in_turn(name_server: str, messages: int, in_flight: int) -> None:
    """Send requests made before, each when an earlier one is answered: as many together as answers came."""
    with _prepared(name_server) as (client, connection, made):
        waiting: set[int] = set()
        free, left = in_flight, messages
        while left or waiting:
            deadline = client.deadline(_ANSWER_MS)
            count = min(free, left)
            waiting.update(connection.submit_all([made] * count, deadline=deadline))
            answered = connection.wait_some(waiting, deadline)
            waiting.difference_update(opaque for opaque, _ in answered)
            free, left = len(answered), left - count


@contextmanager
def _prepared(name_server: str) -> Iterator[tuple[Client, Connection, tuple[Request, bytes]]]:
    """Return a connection to the broker, and a request to send to it again and again."""
    with Client(name_server) as client:
        queue: MessageQueue = client.write_queues("few")[0]
        connection = client.connection(client.queue_address(queue))
        request = SendMessageRequest(
            producer_group="benchmark",
            topic="few",
            default_topic="few",
            queue_id=0,
            born_timestamp=1,
            broker_name=queue.broker_name,
        )
        made = (TemplatedRequest(RequestTemplate(request, "queue_id"), (0,)), b"x" * 1024)
        yield client, connection, made


_HALVES: Final = {
    "deliveryGuarantee": "transactional",
    "transactionVisibility": "plain",
    "transactionLog": "never-written",
    "sendsInFlight": "8",
}
WAYS: Final[dict[str, Callable[[str, int], None]]] = {
    "any-order": _write,
    "delayed": partial(_write, column="delayLevel"),
    "transactional": partial(_write, given=_HALVES),
    "ordered-32-queues": partial(_write, column="shardingKey", given={"topic": "many"}),
    "ordered-4-queues": partial(_write, column="shardingKey"),
    "requests-16-together": partial(_bare, together=16),
    "requests-4-together": partial(_bare, together=4),
    "requests-4-in-turn": partial(_bare_in_turn, in_flight=4),
}


if __name__ == "__main__":
    main()
