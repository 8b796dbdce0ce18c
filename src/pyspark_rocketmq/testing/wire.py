"""Listen on loopback and respond to frames, correctly or as the faults say.

All servers of a mock cluster run on one event loop in one thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, assert_never

from pyspark_rocketmq.errors import ProtocolError
from pyspark_rocketmq.remoting.command import FLAG_RESPONSE, Command
from pyspark_rocketmq.remoting.frame import MAX_FRAME_SENT, MAX_FRAME_TAKEN, Frame, decode_frame, encode_frame
from pyspark_rocketmq.testing.faults import (
    Announce,
    Cut,
    Damage,
    Delay,
    Drip,
    Fault,
    HangUp,
    Refuse,
    Reorder,
    Repeat,
    Short,
    Silence,
    Stranger,
)

__all__ = ["Loop", "Reply", "Server", "encode_reply"]

T = TypeVar("T")

_STOP_TIMEOUT_S: Final = 10.0
_REORDER_PATIENCE_S: Final = 0.02
_STRANGE_OPAQUE: Final = 0x7FFF0000


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's response. With ``wait_ms`` it is sent when new data arrives, or after that time.

    ``again``: the request to execute then, if it is another one.
    """

    code: int = 0
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str | None = None
    wait_ms: int | None = None
    again: Frame | None = None


Handler = Callable[[Frame, int | None], Reply]
"""Executes a request. The number limits the messages of a pull response."""


class Loop:
    """An event loop in its own thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._news = asyncio.Event()

    def start(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mock-rocketmq", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Its servers must be stopped before."""
        if self._loop is None or self._thread is None:
            return
        self.run(_settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_TIMEOUT_S)
        self._loop.close()
        self._loop = self._thread = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result. Callable from any thread but the loop's."""
        assert self._loop is not None, "the mock cluster is not running"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_STOP_TIMEOUT_S)

    def announce_news(self) -> None:
        """Wake suspended pulls, from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)

    async def news(self, timeout_s: float) -> None:
        """Wait for new data, at most this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


async def _settle() -> None:
    """Wait until just accepted connections and aborted transports have finished.

    Both take some iterations of the loop: they have finished when it was idle for a few.
    """
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)
    await _turns(5)


def _bound(port: int) -> socket.socket | None:
    """Return a socket that has a port and does not listen, if the port is free."""
    place = socket.socket()
    if os.name == "posix":  # connections that were closed just now keep the port
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        place.bind(("127.0.0.1", port))
    except OSError:
        place.close()
        return None
    return place


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@dataclass(slots=True, eq=False)
class _Session:
    """One accepted connection, the responses held by a `Reorder`, and those that wait for a `Drip`."""

    writer: asyncio.StreamWriter
    held: list[bytes] = field(default_factory=list)
    waiting: list[bytes] | None = None

    def send(self, data: bytes) -> None:
        if self.waiting is not None:
            self.waiting.append(data)
        elif not self.writer.is_closing():
            self.writer.write(data)

    def release(self) -> None:
        while self.held:
            self.send(self.held.pop())

    def hang_up(self) -> None:
        self.writer.transport.abort()


class Server:
    """One address: a name server, or a replica of a broker.

    Parameters
    ----------
    loop : Loop
    handle : Callable
        Executes a request.
    next_fault : Callable
        Returns the fault of a request by its code.
    tls : ssl.SSLContext, optional
    """

    def __init__(
        self,
        loop: Loop,
        handle: Handler,
        next_fault: Callable[[int], Fault | None],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._loop = loop
        self._handle = handle
        self._next_fault = next_fault
        self._tls = tls
        self._port = 0
        self._listener: asyncio.Server | None = None
        self._place: socket.socket | None = None
        self._sessions: set[_Session] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def addr(self) -> str:
        """``127.0.0.1:port``, the same after restarts."""
        return f"127.0.0.1:{self._port}"

    @property
    def running(self) -> bool:
        """Whether it listens."""
        return self._listener is not None

    def start(self) -> None:
        """Listen. No effect if it already listens."""
        if self._listener is None:
            self._leave_place()
            self._loop.run(self._start())

    def stop(self) -> None:
        """Close the listener and every connection. No effect if it is stopped.

        The address refuses connections until the next start: no other server of the machine gets it.
        """
        if self._listener is not None:
            self._loop.run(self._stop())
            self._place = _bound(self._port)

    def close(self) -> None:
        """Stop, and give the address back."""
        self.stop()
        self._leave_place()

    def _leave_place(self) -> None:
        if self._place is not None:
            self._place.close()
            self._place = None

    def hang_up(self) -> None:
        """Close every connection and continue to listen."""
        self._loop.run(self._hang_up())

    async def _start(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self._port, ssl=self._tls)
        self._port = self._listener.sockets[0].getsockname()[1]

    async def _hang_up(self) -> None:
        for session in tuple(self._sessions):
            session.hang_up()

    async def _stop(self) -> None:
        listener, self._listener = self._listener, None
        assert listener is not None
        for sock in listener.sockets:
            asyncio.get_running_loop().remove_reader(sock.fileno())
        # A connection that was just accepted must belong to the server before the server is closed:
        # otherwise asyncio would fail on it and leave its socket open.
        await _turns(2)
        listener.close()
        await self._hang_up()
        for task in self._tasks:
            task.cancel()
        while self._sessions:
            await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = _Session(writer)
        self._sessions.add(session)
        if self._listener is None:  # accepted while it was being stopped
            session.hang_up()
        try:
            while True:
                head = await reader.readexactly(4)
                size = int.from_bytes(head, "big")
                if size + 4 > MAX_FRAME_SENT:
                    return
                frame = decode_frame(memoryview(head + await reader.readexactly(size)))
                self._take(session, frame)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, ProtocolError):
            return  # a real server does not respond, either
        finally:
            session.hang_up()
            self._sessions.discard(session)

    # --- responses ---

    def _take(self, session: _Session, frame: Frame) -> None:
        fault = self._next_fault(frame.command.code)
        match fault:
            case Refuse():
                self._answer(session, frame, Reply(fault.code, remark=fault.remark), None)
            case Silence() | HangUp():
                if fault.executed:
                    self._handle(frame, None)
                if isinstance(fault, HangUp):
                    session.hang_up()
            case Short():
                self._answer(session, frame, self._handle(frame, fault.messages), None)
            case _:
                self._answer(session, frame, self._handle(frame, None), fault)

    def _answer(self, session: _Session, frame: Frame, reply: Reply, fault: Fault | None) -> None:
        if frame.command.is_one_way:
            return
        if reply.wait_ms is None:
            self._deliver(session, encode_reply(frame, reply), fault)
        else:
            self._spawn(self._suspend(session, reply.again or frame, reply.wait_ms / 1000, fault))

    async def _suspend(self, session: _Session, frame: Frame, wait_s: float, fault: Fault | None) -> None:
        """Respond to a pull when it finds messages or its time is over."""
        now = asyncio.get_running_loop().time
        end = now() + wait_s
        while True:
            reply = self._handle(frame, None)
            if reply.wait_ms is None or now() >= end:
                break
            await self._loop.news(end - now())
        self._deliver(session, encode_reply(frame, reply), fault)

    def _deliver(self, session: _Session, data: bytes, fault: Fault | None) -> None:
        match fault:
            case None | Refuse() | Silence() | HangUp() | Short():
                session.send(data)
            case Delay(seconds):
                self._spawn(self._send_later(session, data, seconds))
            case Cut(after_bytes):
                session.send(data[:after_bytes])
                session.writer.close()  # when these bytes are sent
            case Drip():
                self._spawn(self._drip(session, data, fault))
            case Damage(change):
                session.send(change(data))
            case Stranger():
                session.send(encode_frame(Command(0, _STRANGE_OPAQUE, FLAG_RESPONSE), b"not for you"))
                session.send(data)
            case Announce(size):
                session.send(size.to_bytes(4, "big"))
            case Reorder(hold):
                session.held.append(data)
                if len(session.held) >= hold:
                    session.release()
                else:
                    asyncio.get_running_loop().call_later(_REORDER_PATIENCE_S, session.release)
            case Repeat():
                session.send(data + data)
            case _:
                assert_never(fault)

    async def _send_later(self, session: _Session, data: bytes, seconds: float) -> None:
        await asyncio.sleep(seconds)
        session.send(data)

    async def _drip(self, session: _Session, data: bytes, fault: Drip) -> None:
        if session.waiting is not None:  # one is already dripping
            session.send(data)
            return
        session.waiting = []
        for start in range(0, len(data), fault.step_bytes):
            if not session.writer.is_closing():
                session.writer.write(data[start : start + fault.step_bytes])
            await asyncio.sleep(fault.pause_s)
        waited, session.waiting = session.waiting, None
        session.send(b"".join(waited))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def encode_reply(frame: Frame, reply: Reply) -> bytes:
    """Return the response frame to a request."""
    command = Command(
        code=reply.code,
        opaque=frame.command.opaque,
        flag=FLAG_RESPONSE,
        fields=reply.fields,
        remark=reply.remark,
    )
    return encode_frame(command, reply.body, limit=MAX_FRAME_TAKEN)
