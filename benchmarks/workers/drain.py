"""The raw limit: the same pulls, pipelined over one socket, without decoding a byte.

The pulls of a full read are determined once, before the first round. A round then sends the same frames and
counts responses and bytes.
"""

from __future__ import annotations

import argparse
import socket
import struct

from benchmarks.workers.rounds import Done, serve
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.read.range_reader import Pulled, read_chunks
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.remoting.command import Command, Serializer
from pyspark_rocketmq.remoting.frame import encode_frame
from pyspark_rocketmq.remoting.header import PullMessageRequest

GROUP = "bench-drain"
_WORD = struct.Struct(">I")


def main() -> None:
    """Determine the pulls, then drain them once per round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name_server")
    parser.add_argument("topic")
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--serializer", default="JSON", choices=[each.name for each in Serializer])
    args = parser.parse_args()
    with Client(args.name_server) as client:
        lows = client.min_offsets(client.read_queues(args.topic))
        highs = client.max_offsets(lows)
        pulls = [
            (queue, chunk.from_offset, chunk.until_offset)
            for queue, low in lows.items()
            for event in read_chunks(
                client, [OffsetRange(queue, low, highs[queue])], ReadOptions(consumer_group=GROUP)
            )
            if isinstance(event, Pulled)
            for chunk in event.chunks
        ]
        addr = client.broker_address(pulls[0][0].broker_name, topic=args.topic)
    serializer = Serializer[args.serializer]
    frames = [_pull(number, *pull, serializer) for number, pull in enumerate(pulls)]
    messages = sum(until - start for _, start, until in pulls)
    host, _, port = addr.rpartition(":")

    def read() -> Done:
        # One connection per round: brokers close connections that are idle for two minutes.
        with socket.create_connection((host, int(port))) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return Done(messages, drain(sock, frames, args.in_flight), {"pulls": len(frames)})

    serve(read)


def drain(sock: socket.socket, frames: list[bytes], in_flight: int, buffer_bytes: int = 1 << 20) -> int:
    """Send all frames with a limit of unanswered ones. Return the number of bytes received."""
    buffer = bytearray(buffer_bytes)
    view = memoryview(buffer)
    sock.sendall(b"".join(frames[:in_flight]))
    sent, answered, total = min(in_flight, len(frames)), 0, 0
    start = end = 0
    while answered < len(frames):
        received = sock.recv_into(view[end:])
        if not received:
            raise ConnectionError("the broker closed the connection")
        total += received
        end += received
        before = answered
        while end - start >= 4 and end - start >= (size := 4 + _WORD.unpack_from(buffer, start)[0]):
            start += size
            answered += 1
        if answered > before and sent < len(frames):
            more = frames[sent : sent + answered - before]
            sock.sendall(b"".join(more))
            sent += len(more)
        if start == end:
            start = end = 0
        elif len(buffer) - end < 1 << 17:
            rest = bytes(view[start:end])
            view[: len(rest)] = rest
            start, end = 0, len(rest)
    return total


def _pull(number: int, queue: MessageQueue, start: int, until: int, serializer: Serializer) -> bytes:
    request = PullMessageRequest(
        consumer_group=GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=start,
        max_msg_nums=until - start,
        sys_flag=4,
        subscription="*",
        expression_type="TAG",
        broker_name=queue.broker_name,
    )
    return encode_frame(Command(request.CODE, number + 1, fields=request.fields()), serializer=serializer)


if __name__ == "__main__":
    main()
