"""The driver's end of a receiver's link, without Spark."""

from __future__ import annotations

import socket
import threading

from pyspark_rocketmq.dstream.receiver.link import (
    FRAME,
    HELLO_SIZE,
    REPLY,
    FrameKind,
    ReceiverSpec,
    ReplyStatus,
    proof,
)

__all__ = ["SECRET", "ReceiverDriver"]

SECRET = b"s" * 32


class ReceiverDriver:
    """The driver's end: takes frames, and answers as the test says."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.spec = ReceiverSpec(0, "127.0.0.1", self._server.getsockname()[1], SECRET, 20)
        self.frames: list[tuple[int, int, bytes]] = []
        self.blocks: list[bytes] = []
        self.refuse = 0
        self.stop = False
        self.known = False
        self.rate = -1.0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the task has closed its connection."""
        return not self._thread.is_alive()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection, self._server:
            connection.sendall(b"n" * 16)
            hello = self._receive(connection, HELLO_SIZE)
            self.known = hello[4:] == proof(SECRET, b"n" * 16, 0)
            while head := self._receive(connection, FRAME.size):
                kind, length, messages, skipped = FRAME.unpack(head)
                payload = self._receive(connection, length)
                self.frames.append((kind, messages, payload if kind != FrameKind.BLOCK else b""))
                self.skipped = skipped
                status = ReplyStatus.STOP if self.stop else ReplyStatus.STORED
                if kind == FrameKind.BLOCK:
                    status = ReplyStatus.REFUSED if self.refuse > 0 else ReplyStatus.STORED
                    self.refuse -= 1
                    if status is ReplyStatus.STORED:
                        self.blocks.append(payload)
                connection.sendall(REPLY.pack(status, self.rate))

    @staticmethod
    def _receive(connection: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := connection.recv(size - len(data))):
            data += more
        return data
