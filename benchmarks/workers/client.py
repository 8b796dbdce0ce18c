"""Only our client: record batches of some columns, whose bodies are counted and then dropped."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pyarrow as pa

from benchmarks.workers.rounds import Done, serve
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.model import MessageQueue, OffsetRange


def main() -> None:
    """Read this process's share of the queues once per round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name_server")
    parser.add_argument("topic")
    parser.add_argument("--columns", default="body")
    parser.add_argument("--in-flight", type=int)
    parser.add_argument("--share", default="0/1", help="which queues: number of this process / processes")
    args = parser.parse_args()
    number, _, processes = args.share.partition("/")
    options = ReadOptions(consumer_group="bench-client", pulls_in_flight=args.in_flight)
    decode = DecodeOptions(columns=args.columns.split(","))
    with Client(args.name_server) as client:

        def read() -> Done:
            queues = client.read_queues(args.topic)[int(number) :: int(processes)]
            return read_all(client, queues, options, decode)

        serve(read)


def read_all(
    client: Client, queues: Sequence[MessageQueue], options: ReadOptions, decode: DecodeOptions
) -> Done:
    """Read queues from their beginnings to their ends."""
    lows, highs = client.min_offsets(queues), client.max_offsets(queues)
    ranges = [OffsetRange(queue, lows[queue], highs[queue]) for queue in queues]
    messages = size = 0
    for batch in read_batches(client, ranges, options, decode):
        messages += batch.num_rows
        size += body_bytes(batch)
    return Done(messages, size)


def body_bytes(batch: pa.RecordBatch) -> int:
    """Return the total bytes of a batch's bodies."""
    body = batch.column("body")
    ends = memoryview(body.buffers()[1]).cast("B").cast("i")
    return ends[body.offset + len(body)] - ends[body.offset]


if __name__ == "__main__":
    main()
