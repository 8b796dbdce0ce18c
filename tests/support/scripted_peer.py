"""A peer on loopback that answers frames as a test scripts it: good, late, in pieces, or wrong."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from pyspark_rocketmq.remoting.command import FLAG_RESPONSE, Command
from pyspark_rocketmq.remoting.frame import Frame, decode_frame, encode_frame

Script = Callable[["Peer", Frame], None]


def answer(
    frame: Frame, body: bytes = b"", *, code: int = 0, remark: str | None = None, **fields: str
) -> bytes:
    """Encode a response to ``frame``."""
    command = Command(
        code=code, opaque=frame.command.opaque, flag=FLAG_RESPONSE, fields=fields, remark=remark
    )
    return encode_frame(command, body)


class Peer:
    """One accepted connection."""

    def __init__(self, sock: socket.socket) -> None:
        # As brokers: else the kernel holds small answers back until the one before is acknowledged.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def frames(self):
        """Yield the frames that come in until the other side hangs up."""
        with contextlib.suppress(OSError), self.sock.makefile("rb") as stream:
            while head := stream.read(4):
                rest = stream.read(int.from_bytes(head, "big"))
                yield decode_frame(memoryview(head + rest))


class ScriptedPeer:
    """Listens on a free port, with TLS if given a context, and runs ``script`` for every frame."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.addr = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._threads: list[threading.Thread] = []
        self._peers: list[Peer] = []

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            peer = Peer(sock)
            self._peers.append(peer)
            self._start(lambda peer=peer: self._serve(peer))

    def _serve(self, peer: Peer) -> None:
        with contextlib.suppress(OSError):
            if self._tls is not None:
                peer.sock = self._tls.wrap_socket(peer.sock, server_side=True)
            with peer.sock:
                for frame in peer.frames():
                    self._script(peer, frame)

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def hang_up(self) -> None:
        """End all connections; new ones are still accepted."""
        for peer in self._peers:
            peer.hang_up()

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(timeout=5)
