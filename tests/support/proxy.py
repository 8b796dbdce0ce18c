"""A TCP proxy on loopback that does to the bytes what bad networks do."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.support.scripted_peer import Peer, ScriptedPeer

from pyspark_rocketmq.client.net.endpoint import split_address
from pyspark_rocketmq.remoting.frame import Frame, decode_frame, encode_frame

_CHUNK = 65_536


@dataclass
class Trouble:
    """What happens to the bytes of a connection on their way to the client (``down``) or to the server.

    Parameters
    ----------
    cut_after : int, optional
        Close the connection when so many bytes have come down.
    stall_after : int, optional
        Forward nothing any more, in both directions, and keep the connection open: half-open.
    drop : tuple of int, optional
        From this position on, so many bytes vanish.
    change : Callable, optional
        Gets each chunk that comes down and its position; returns what travels instead.
    delay_s : float
        Before each chunk, both ways.
    way_s : float
        How long each byte is on its way, both ways; unlike ``delay_s`` it does not bound how many are.
    step : int
        The largest chunk that is sent on.
    """

    cut_after: int | None = None
    stall_after: int | None = None
    drop: tuple[int, int] | None = None
    change: Callable[[bytes, int], bytes] | None = None
    delay_s: float = 0.0
    way_s: float = 0.0
    step: int = _CHUNK


def flip(*positions: int, mask: int = 0x01) -> Callable[[bytes, int], bytes]:
    """Return a change that flips bits of the bytes at these positions of the stream."""

    def change(chunk: bytes, start: int) -> bytes:
        damaged = bytearray(chunk)
        for position in positions:
            if start <= position < start + len(chunk):
                damaged[position - start] ^= mask
        return bytes(damaged)

    return change


class _Way:
    """The chunks of a socket, each so long after it came."""

    def __init__(self, source: socket.socket, way_s: float) -> None:
        self._source = source
        self._way_s = way_s
        self._chunks: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Iterator[bytes]:
        if not self._way_s:
            return iter(lambda: self._source.recv(_CHUNK), b"")
        self._thread.start()
        return self._late()

    def __exit__(self, *error: object) -> None:
        if self._thread.ident is not None:
            self._thread.join(timeout=5)

    def _read(self) -> None:
        chunk = b"?"
        while chunk:
            try:
                chunk = self._source.recv(_CHUNK)
            except OSError:
                chunk = b""
            self._chunks.put((time.monotonic() + self._way_s, chunk))

    def _late(self) -> Iterator[bytes]:
        while True:
            due, chunk = self._chunks.get()
            time.sleep(max(0.0, due - time.monotonic()))  # this is the way that the test ordered
            if not chunk:
                return
            yield chunk


@dataclass
class _Link:
    """One client's connection and its twin to the server."""

    client: socket.socket
    server: socket.socket
    trouble: Trouble
    down: int = 0
    stalled: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        for sock in (self.client, self.server):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def pump(self, source: socket.socket, sink: socket.socket, *, downwards: bool) -> None:
        with contextlib.suppress(OSError), _Way(source, self.trouble.way_s) as chunks:
            self._forward(chunks, sink, downwards=downwards)
        if not self.stalled.is_set():
            self.close()

    def _forward(self, chunks: Iterable[bytes], sink: socket.socket, *, downwards: bool) -> None:
        step = self.trouble.step
        for chunk in chunks:
            for start in range(0, len(chunk), step):
                part = chunk[start : start + step]
                if self.trouble.delay_s:
                    time.sleep(self.trouble.delay_s)  # this is the delay that the test ordered
                if downwards:
                    part = self._spoil(part)
                if self.stalled.is_set():
                    continue
                sink.sendall(part)
                if downwards and self._reached(self.trouble.cut_after):
                    return

    def _reached(self, position: int | None) -> bool:
        return position is not None and self.down >= position

    def _spoil(self, part: bytes) -> bytes:
        trouble, start = self.trouble, self.down
        for limit in (trouble.cut_after, trouble.stall_after):
            if limit is not None:
                part = part[: max(0, limit - start)]
        self.down += len(part)
        if trouble.stall_after is not None and self.down >= trouble.stall_after and not part:
            self.stalled.set()
        if trouble.change is not None:
            part = trouble.change(part, start)
        if trouble.drop is not None:
            first, count = trouble.drop
            part = part[: max(0, first - start)] + part[max(0, first + count - start) :]
        return part


class Proxy:
    """Forwards to ``upstream``; the n-th connection meets the n-th trouble, later ones the last of them.

    Parameters
    ----------
    upstream : str
        ``host:port``.
    troubles : Trouble
        None: everything goes well.
    """

    def __init__(self, upstream: str, *troubles: Trouble) -> None:
        self._upstream = split_address(upstream)
        self.troubles = list(troubles)
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.addr = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._links: list[_Link] = []
        self._threads: list[threading.Thread] = []

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._upstream, timeout=60)
            except OSError:
                return
            server.settimeout(None)
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            trouble = (
                self.troubles[min(self.connections, len(self.troubles) - 1)] if self.troubles else Trouble()
            )
            self.connections += 1
            link = _Link(client, server, trouble)
            self._links.append(link)
            self._start(lambda link=link: link.pump(link.server, link.client, downwards=True))
            self._start(lambda link=link: link.pump(link.client, link.server, downwards=False))

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            link.close()
        for thread in self._threads:
            thread.join(timeout=5)
        for link in self._links:
            link.client.close()
            link.server.close()


class RewritingNameServer(ScriptedPeer):
    """Asks a real name server and tells clients other addresses of brokers: ``{"ip:port": "ip:port"}``."""

    def __init__(self, name_server: str, addresses: dict[str, str]) -> None:
        super().__init__(self._forward)
        self._upstream = split_address(name_server)
        self._addresses = addresses

    def _forward(self, peer: Peer, frame: Frame) -> None:
        with socket.create_connection(self._upstream, timeout=60) as upstream:
            upstream.sendall(encode_frame(frame.command, bytes(frame.body)))
            with upstream.makefile("rb") as stream:
                head = stream.read(4)
                answer = decode_frame(memoryview(head + stream.read(int.from_bytes(head, "big"))))
        body = bytes(answer.body)
        for real, told in self._addresses.items():
            body = body.replace(f'"{real}"'.encode(), f'"{told}"'.encode())
        peer.send(encode_frame(answer.command, body))
