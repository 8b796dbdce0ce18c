"""Reading over a long way: our client beside itself on the machine of the broker.

``python -m benchmarks.far`` starts a broker and, for each way, a TCP proxy in another process that holds
every byte for that time, in both directions. That of 0 ms is between them, too, so that all take one path.
The first read over each way is not counted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from statistics import median

from rich.console import Console
from rich.table import Table
from tests.support.proxy import Proxy, RewritingNameServer, Trouble

from benchmarks.topics import Case, bench
from benchmarks.workers.client import read_all
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions
from pyspark_rocketmq.client.read.read_options import ReadOptions


def main() -> None:
    """Read a topic over each way in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--ways", default="0,20,100", help="comma list of round trips in ms")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    ways = [int(each) for each in args.ways.split(",")]
    rates: dict[int, list[float]] = {way: [] for way in ways}
    case = Case(messages=args.messages, body_bytes=1024, queues=4)
    with bench() as mq, ExitStack() as stack:
        mq.fill(case)
        with Client(mq.name_server) as client:
            (broker,) = {data.master for data in client.route(case.topic).brokers}
        assert broker is not None
        clients = {way: stack.enter_context(far_client(mq.name_server, broker, way)) for way in ways}
        for turn in range(args.rounds + 1):
            for way, client in clients.items():
                rate = read(client, case.topic, args.messages)
                if turn:
                    rates[way].append(rate)
    table = Table("round trip, ms", "k msg/s (min-max)", "MB/s", "vs the first")
    first = median(rates[ways[0]])
    for way, found in rates.items():
        spread = f"{min(found) / 1e3:.0f}-{max(found) / 1e3:.0f}"
        rate = median(found)
        table.add_row(
            str(way), f"{rate / 1e3:.0f} ({spread})", f"{rate * 1024 / 1e6:.0f}", f"{rate / first:.2f}x"
        )
    Console().print(table)


@contextmanager
def far_client(name_server: str, broker: str, way_ms: int) -> Iterator[Client]:
    """Return a client whose broker is ``way_ms`` away, there and back."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_hold, args=(broker, way_ms, theirs))
    process.start()
    theirs.close()  # so that the end of the process ends the wait for its address
    try:
        address = ours.recv()
        with (
            RewritingNameServer(name_server, {broker: address}) as names,
            Client(names.addr) as client,
        ):
            yield client
    finally:
        ours.close()
        process.join(30)
        process.kill()


def _hold(broker: str, way_ms: int, parent: Connection) -> None:
    with Proxy(broker, Trouble(way_s=way_ms / 2_000)) as proxy:
        parent.send(proxy.addr)
        with suppress(EOFError):  # its end
            parent.recv()


def read(client: Client, topic: str, count: int) -> float:
    """Return the messages per second of one read of all queues."""
    options = ReadOptions(consumer_group="bench-far")
    begin = time.perf_counter()
    done = read_all(client, client.read_queues(topic), options, DecodeOptions(columns=["body"]))
    seconds = time.perf_counter() - begin
    assert done.messages == count
    return done.messages / seconds


if __name__ == "__main__":
    main()
