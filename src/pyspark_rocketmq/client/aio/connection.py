"""One connection of an event loop: requests in flight by their numbers, as `Connection` has them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Final, Self

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions, split_address
from pyspark_rocketmq.client.net.frame_socket import encode_request
from pyspark_rocketmq.client.net.pipelining import MAX_IN_FLIGHT
from pyspark_rocketmq.client.net.receive_buffer import ReceiveBuffer
from pyspark_rocketmq.client.net.wire_log import WireLog
from pyspark_rocketmq.errors import (
    ConnectError,
    ConnectionLostError,
    RemoteProtocolError,
    RequestTimeoutError,
)
from pyspark_rocketmq.remoting.command import FLAG_ONE_WAY, Buffer
from pyspark_rocketmq.remoting.request_numbers import RequestNumbers
from pyspark_rocketmq.remoting.template import Request

__all__ = ["AsyncConnection"]

_SILENCE_MS: Final = 250
"""See `Connection`: a peer that sends nothing during a whole deadline is considered half-open."""


class AsyncConnection(asyncio.Protocol):
    """A connection of the running event loop. Open it with `open`.

    Parameters
    ----------
    addr : str
    options : ConnectionOptions
    clock : Clock
    """

    def __init__(self, addr: str, options: ConnectionOptions, clock: Clock) -> None:
        self.addr = addr
        self._options = options
        self._clock = clock
        self._wire_log = WireLog(addr, clock, options.credentials) if options.wire_log else None
        self._transport: asyncio.Transport | None = None
        self._buffer = ReceiveBuffer()
        self._numbers = RequestNumbers()
        self._pending: dict[int, asyncio.Future[Response]] = {}
        self._room = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._writable = asyncio.Event()
        self._ended = asyncio.Event()
        self._heard_at = clock.monotonic()
        self._error: ConnectionLostError | RemoteProtocolError | None = None

    @classmethod
    async def open(cls, addr: str, options: ConnectionOptions, clock: Clock) -> Self:
        """Connect. Of a name with several addresses each one has a share of the time, until one answers.

        Raises
        ------
        ConnectError
            There is no connection (or no TLS session) within ``connect_timeout_ms``.
        """
        host, port = split_address(addr)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + options.connect_timeout_ms / 1000
        try:
            context = None if options.tls is None else options.tls.context()
            name = None if options.tls is None else options.tls.server_name or host
            async with asyncio.timeout_at(end_s):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            places = list(dict.fromkeys(str(place[4][0]) for place in found))
            for left, place in zip(range(len(places), 0, -1), places, strict=True):
                try:
                    async with asyncio.timeout((end_s - loop.time()) / left):
                        _, connection = await loop.create_connection(
                            lambda: cls(addr, options, clock), place, port, ssl=context, server_hostname=name
                        )
                    break
                except OSError:
                    if left == 1:
                        raise
        except TimeoutError as cause:
            raise ConnectError(
                f"cannot connect: no connection within {options.connect_timeout_ms} ms", addr=addr
            ) from cause
        except (OSError, UnicodeError) as cause:  # of TLS, of a certificate's file, of what cannot be a name
            raise ConnectError(f"cannot connect: {cause}", addr=addr) from cause
        return connection

    def __repr__(self) -> str:
        return f"AsyncConnection({self.addr}, in_flight={len(self._pending)}, alive={self.alive})"

    @property
    def alive(self) -> bool:
        """Whether the connection has not failed so far."""
        return self._error is None

    async def call(self, request: Request, body: Buffer = b"", *, deadline: Deadline) -> Response:
        """Send a request and wait for its answer, whatever its code. Cancellation forgets the request.

        Raises
        ------
        ConnectionLostError, RequestTimeoutError
            Whether the request took effect is then unknown.
        RemoteProtocolError
            The peer sent something that is no answer.
        """
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        await self._wait_for_room(deadline, len(body))
        opaque = self._numbers.take()
        try:
            self._write(encode_request(self._options, request, body, opaque, 0), opaque, answer)
            while not (await asyncio.wait((answer,), timeout=deadline.remaining_s))[0]:
                deadline.record_progress(self._numbers.answered_before(opaque))
                if deadline.expired:
                    raise self._overdue(deadline)
            return answer.result()
        finally:
            self._pending.pop(opaque, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # no other task looks at it

    async def post(self, request: Request, body: Buffer = b"", *, deadline: Deadline) -> None:
        """Send a one-way request: the server never answers, not even with an error. Raises as `call`."""
        await self._wait_for_room(deadline, len(body))
        opaque = self._numbers.take()
        self._write(encode_request(self._options, request, body, opaque, FLAG_ONE_WAY))
        await self._wait_for_room(deadline, len(body))

    @contextlib.asynccontextmanager
    async def turn(self, deadline: Deadline) -> AsyncIterator[None]:
        """Wait for a place among the requests in flight, for callers that have many.

        Raises
        ------
        RequestTimeoutError
        """
        try:
            async with asyncio.timeout(deadline.remaining_s):
                await self._room.acquire()
        except TimeoutError as cause:
            raise RequestTimeoutError(
                f"other requests are in flight: no place within {deadline.timeout_ms:.0f} ms", addr=self.addr
            ) from cause
        try:
            yield
        finally:
            self._room.release()

    def abort(self) -> None:
        """Close the connection, without waiting until it is closed."""
        self._fail(ConnectionLostError("the connection was closed", addr=self.addr))

    async def close(self) -> None:
        """Close the connection, and wait until it is closed, at most a second."""
        self.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._ended.wait()

    # --- what the event loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        why = "the peer closed the connection" if exc is None else f"the connection broke: {exc}"
        self._fail(ConnectionLostError(why, addr=self.addr))
        self._ended.set()

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._heard_at = self._clock.monotonic()
        rest = memoryview(data)
        try:
            while rest and self._error is None:
                room = self._buffer.room()
                size = min(len(room), len(rest))
                room[:size] = rest[:size]
                room.release()
                rest = rest[size:]
                self._buffer.add_received(size)
                self._take_frames()
        except RemoteProtocolError as error:
            error.facts.setdefault("addr", self.addr)
            self._fail(error)
        if not self._pending:
            self._buffer.shrink()

    def _take_frames(self) -> None:
        """Give each answer to the task that waits for it. The server's requests are for group members."""
        for command, buffer, start, end in self._buffer.take_frames():
            if self._wire_log is not None:
                self._wire_log.log_received(command, end - start)
            if not command.is_response:
                continue
            self._numbers.record_answer(command.opaque, self._heard_at)
            answer = self._pending.pop(command.opaque, None)
            if answer is not None and not answer.done():
                answer.set_result(Response(command, self.addr, buffer, start, end))

    # --- sending and failing ---

    async def _wait_for_room(self, deadline: Deadline, size: int) -> None:
        """Wait until the peer takes bytes; after a time-out in which it took ``size``, as long again."""
        assert self._transport is not None
        while not self._writable.is_set():
            unsent, had_room = self._transport.get_write_buffer_size(), False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(deadline.remaining_s):
                    had_room = await self._writable.wait()  # another task may have filled it first
            if had_room or self._transport.get_write_buffer_size() <= unsent - max(1, size):
                deadline.record_progress(self._clock.monotonic())
            if deadline.expired:
                raise self._overdue(deadline)

    def _write(
        self, parts: Sequence[Buffer], opaque: int = 0, answer: asyncio.Future[Response] | None = None
    ) -> None:
        """Write, and expect an answer from then on."""
        self._check()
        if answer is not None:
            self._pending[opaque] = answer
        if self._wire_log is not None:
            self._wire_log.log_sent(b"".join(parts))
        assert self._transport is not None
        for part in parts:
            self._transport.write(part)

    def _fail(self, error: ConnectionLostError | RemoteProtocolError) -> None:
        """Mark the connection as failed. All waiting tasks get the first error."""
        if self._error is None:
            self._error = error
        pending, self._pending = self._pending, {}
        for answer in pending.values():
            if not answer.done():
                answer.set_exception(type(self._error)(self._error.message, **self._error.facts))
        self._writable.set()
        if self._transport is not None:
            self._transport.abort()

    def _overdue(self, deadline: Deadline) -> RequestTimeoutError:
        """Return the error of a wait that timed out. A peer that sent nothing meanwhile may be half-open."""
        error = RequestTimeoutError(
            f"no answer within {deadline.timeout_ms:.0f} ms", addr=self.addr, in_flight=len(self._pending)
        )
        silent_ms = (self._clock.monotonic() - self._heard_at) * 1000
        if silent_ms >= deadline.timeout_ms >= _SILENCE_MS:
            self._fail(ConnectionLostError(f"the peer was silent for {silent_ms:.0f} ms", addr=self.addr))
        return error

    def _check(self) -> None:
        if self._error is not None:
            raise type(self._error)(self._error.message, **self._error.facts) from self._error
