"""CPU time of decoding pull responses to Arrow, without network or broker.

Run ``python benchmarks/decode.py`` (``--help`` shows the parameters). Messages of one size are in responses
of 32 in receive buffers of 2 MiB, as in the client. The figures are microseconds of CPU per message, best of
several rounds, next to the cost of one plain copy of the bodies.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.compress import Compression
from pyspark_rocketmq.record.decode.arrow import COLUMNS, DEFAULT_COLUMNS, BatchDecoder, Chunk
from pyspark_rocketmq.record.message import decode_messages, encode_message

QUEUE = MessageQueue("orders", "broker-a", 3)


def main() -> None:
    options = _options()
    buffers = list(_buffers(options))
    chunks = [chunk for buffer in buffers for chunk in buffer]
    size = options.call // options.answer
    groups = [chunks[first : first + size] for first in range(0, len(chunks), size)]
    total = options.messages
    size = sum(chunk.end - chunk.start for chunk in chunks) / total
    print(f"{total} messages of {size:.0f} bytes, {len(chunks)} answers in {len(buffers)} buffers")

    def report(name: str, work: Callable[[], None], messages: int = total) -> None:
        print(f"  {name:34} {_best(work, options.rounds) / messages * 1e6:7.3f} us")

    scratch = np.empty(options.body * 4096, np.uint8)
    report("one copy of the bodies", lambda: _copy(buffers, scratch, options.body))
    plans = {
        "body only": ("body",),
        "ten default columns": DEFAULT_COLUMNS,
        "ten and properties": (*DEFAULT_COLUMNS, "properties"),
        "all columns": tuple(COLUMNS),
    }
    for name, columns in plans.items():
        report(name, lambda columns=columns: _decode(groups, columns))
    print("one column at a time, scan included")
    for column in COLUMNS:
        report(column, lambda column=column: _decode(groups, (column,)))
    some = chunks[: max(1, 2000 // options.answer)]
    report("reference codec", lambda: _reference(some), sum(c.until_offset - c.from_offset for c in some))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--body", type=int, default=1024, help="bytes a body")
    parser.add_argument("--answer", type=int, default=32, help="messages an answer")
    parser.add_argument("--buffer", type=int, default=2 << 20, help="bytes a receive buffer")
    parser.add_argument("--call", type=int, default=10_000, help="messages a call of the decoder")
    parser.add_argument("--vary", action="store_true", help="bodies of half to one and a half the size")
    parser.add_argument("--compression", default="none", choices=[kind.name.lower() for kind in Compression])
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def _buffers(options: argparse.Namespace) -> Iterator[list[Chunk]]:
    """Yield the responses, one receive buffer after another."""
    random = np.random.default_rng(7)
    filler = random.integers(32, 127, 2 * options.body, np.uint8).tobytes()
    data = bytearray()
    spans: list[tuple[int, int, int, int]] = []
    for first in range(0, options.messages, options.answer):
        count = min(options.answer, options.messages - first)
        answer = b"".join(_message(first + index, filler, options) for index in range(count))
        if len(data) + len(answer) > options.buffer:
            yield _chunks(data, spans)
            data, spans = bytearray(), []
        spans.append((len(data), len(data) + len(answer), first, first + count))
        data += answer
    yield _chunks(data, spans)


def _chunks(data: bytearray, spans: list[tuple[int, int, int, int]]) -> list[Chunk]:
    view = memoryview(data)
    return [Chunk(view, *span) for span in spans]


def _message(offset: int, filler: bytes, options: argparse.Namespace) -> bytes:
    size = options.body + (offset * 7919 % options.body - options.body // 2 if options.vary else 0)
    return encode_message(
        filler[offset % options.body :][:size],
        {
            "KEYS": f"order-{offset}",
            "UNIQ_KEY": f"7F00000104D2{offset:020X}",
            "CLUSTER": "DefaultCluster",
            "TAGS": "created",
            "WAIT": "true",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "region": f"r{offset % 7}",
        },
        topic=QUEUE.topic,
        queue_id=QUEUE.queue_id,
        queue_offset=offset,
        commit_log_offset=offset * 1300,
        compression=Compression[options.compression.upper()],
        born_timestamp=1_700_000_000_000 + offset,
        born_host="127.0.0.1:4711",
        store_timestamp=1_700_000_000_001 + offset,
    )


def _decode(groups: list[list[Chunk]], columns: tuple[str, ...]) -> None:
    decoder = BatchDecoder(columns, queue=QUEUE)
    for group in groups:
        decoder.decode(group)


def _reference(chunks: list[Chunk]) -> None:
    for chunk in chunks:
        decode_messages(chunk.buffer[chunk.start : chunk.end], broker_name=QUEUE.broker_name)


def _copy(groups: list[list[Chunk]], scratch: np.ndarray, body: int) -> None:
    for group in groups:
        size = min(scratch.size, sum(chunk.until_offset - chunk.from_offset for chunk in group) * body)
        source = np.frombuffer(group[0].buffer, np.uint8)
        size = min(size, source.size)
        scratch[:size] = source[:size]


def _best(work: Callable[[], None], rounds: int) -> float:
    """Return the minimum CPU time of several rounds, in seconds."""
    work()
    times = []
    for _ in range(rounds):
        before = time.process_time()
        work()
        times.append(time.process_time() - before)
    return min(times)


if __name__ == "__main__":
    pa.set_cpu_count(1)
    main()
