"""One TCP connection to a name server or broker: pipelined requests, no thread of its own.

Any number of requests may be in flight; the server answers them in any order and the opaque number
pairs them up. Whoever waits for an answer reads the socket for everybody (leader and followers), so
there is no background thread to own, to stop, or to lose in a fork. Bytes are received into large
buffers and answers are handed out as views of them: a pull's records are copied once, by the decoder.

A writer never stops reading: a server that cannot get rid of its answers stops taking requests, and a
client that only writes would wait for ever.
"""

from __future__ import annotations

import contextlib
import itertools
import selectors
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.client.receive_buffer import ReceiveBuffer
from pyspark_rocketmq.client.wire_log import WireLog
from pyspark_rocketmq.errors import (
    ConnectError,
    ConnectionLostError,
    RemoteProtocolError,
    RequestTimeoutError,
)
from pyspark_rocketmq.remoting.acl import Credentials, sign
from pyspark_rocketmq.remoting.command import FLAG_ONE_WAY, Buffer, Command, Serializer
from pyspark_rocketmq.remoting.failure import error_for
from pyspark_rocketmq.remoting.frame import encode_frame_head
from pyspark_rocketmq.remoting.header import RequestHeader
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace
from pyspark_rocketmq.remoting.template import RequestTemplate

__all__ = ["Connection", "ConnectionOptions", "Response", "TlsOptions", "split_address"]

_MAX_OPAQUE: Final = 0x7FFFFFFF

_LARGE_BODY: Final = 64 * 1024
"""Bodies of so many bytes go to the socket as they are: no copy behind their header first."""

_SILENCE_MS: Final = 250
"""A peer that sends nothing for the whole of a deadline at least this long is taken for half-open: its
connection is given up, as Java's client does after any time-out (``clientCloseSocketIfTimeout``)."""

RequestHandler = Callable[[Command, memoryview], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """How to speak TLS; brokers are addressed by IP, so the name to verify can be given apart.

    Parameters
    ----------
    ca_file : str, optional
        PEM file of the authorities to trust; the system's when absent.
    cert_file, key_file : str, optional
        PEM files of the client's certificate and key.
    server_name : str, optional
        The name to ask for and to verify instead of the address.
    verify : bool
        False takes any certificate: for tests only.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Build the context; reads the files."""
        context = ssl.create_default_context(cafile=self.ca_file)
        context.check_hostname = self.verify
        context.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        if self.cert_file:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """What a connection needs to know; times in milliseconds."""

    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 10_000
    credentials: Credentials | None = None
    tls: TlsOptions | None = None
    serializer: Serializer = Serializer.JSON
    namespace: Namespace = NO_NAMESPACE
    wire_log: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """An answer whose body lies in a receive buffer shared with other answers.

    ``body`` is a view of ``buffer[start:end]``: copy what must outlive the call, or the whole buffer does.
    """

    command: Command
    addr: str
    buffer: bytearray = field(repr=False)
    start: int
    end: int

    @property
    def body(self) -> memoryview:
        """The body, without a copy."""
        return memoryview(self.buffer)[self.start : self.end]

    @property
    def code(self) -> int:
        """The response code; 0 is success."""
        return self.command.code

    @property
    def remark(self) -> str | None:
        """What the server said; also set on some successes."""
        return self.command.remark

    @property
    def fields(self) -> Mapping[str, str]:
        """The response header's fields."""
        return self.command.fields

    def require(self, *codes: int, **facts: object) -> Response:
        """Return the answer if its code is one of ``codes`` (default: 0), else raise its error."""
        if self.code in (codes or (0,)):
            return self
        raise error_for(self.code, self.remark, addr=self.addr, **facts)


def split_address(addr: str) -> tuple[str, int]:
    """Split ``host:port`` at the last colon (IPv6 addresses come without brackets).

    Raises
    ------
    ConnectError
        If there is no port.
    """
    host, _, port = addr.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConnectError("not an address: expected host:port", addr=addr)
    return host.strip("[]"), int(port)


class Connection:
    """A connected socket; safe to share between threads, not between processes.

    Parameters
    ----------
    addr : str
        ``host:port``.
    options : ConnectionOptions
    clock : Clock

    Raises
    ------
    ConnectError
        If there is no connection (or no TLS session) within ``connect_timeout_ms``.
    """

    def __init__(self, addr: str, options: ConnectionOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self.addr = addr
        self._options = options
        self._clock = clock
        self._wire_log = WireLog(addr, clock, options.credentials) if options.wire_log else None
        self._sock = _connect(addr, options)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._sock, selectors.EVENT_READ)
        self._selects_writable = False
        self._may_have_more = False
        self._io = threading.Lock()  # the socket: TLS objects are not safe for a read beside a write
        self._turn = threading.Condition()  # everything below
        self._leading = False
        self._opaques = itertools.count(1)
        self._pending: set[int] = set()
        self._answers: dict[int, Response] = {}
        self._outgoing: deque[memoryview] = deque()
        self._buffer = ReceiveBuffer()
        self._heard_at = clock.monotonic()
        self._error: ConnectionLostError | RemoteProtocolError | None = None
        self.on_request: RequestHandler | None = None
        """Called with each request that the server makes; such requests are ignored without it."""

    def __repr__(self) -> str:
        return f"Connection({self.addr}, in_flight={len(self._pending)}, alive={self.alive})"

    @property
    def alive(self) -> bool:
        """Whether the connection has not failed so far."""
        return self._error is None

    @property
    def in_flight(self) -> int:
        """How many requests wait for an answer."""
        return len(self._pending)

    def call(
        self, request: RequestHeader, body: Buffer = b"", *, deadline: Deadline | None = None
    ) -> Response:
        """Send a request and wait for its answer, whatever its code.

        Raises
        ------
        ConnectionLostError, RequestTimeoutError
            Whether the request took effect is then unknown.
        RemoteProtocolError
            The peer sent something that is no answer.
        """
        deadline = deadline or self._deadline()
        opaque = self.submit(request, body, deadline=deadline)
        try:
            return self.wait(opaque, deadline)
        except RequestTimeoutError:
            self.abandon(opaque)
            raise

    def submit(self, request: RequestHeader, body: Buffer = b"", *, deadline: Deadline | None = None) -> int:
        """Send a request and return its opaque number: to be waited for or abandoned, or answers pile up."""
        return self.submit_all([(request, body)], deadline=deadline)[0]

    def submit_all(
        self, requests: Sequence[tuple[RequestHeader, Buffer]], *, deadline: Deadline | None = None
    ) -> list[int]:
        """Send requests and their bodies at once; returns their opaque numbers, as `submit` does."""
        opaques = [self._next_opaque() for _ in requests]
        parts: list[Buffer] = []
        for opaque, (request, body) in zip(opaques, requests, strict=True):
            parts += self._encode(request, body, opaque, 0)
        self._request(opaques, parts, deadline)
        return opaques

    def submit_many(
        self,
        template: RequestTemplate,
        values: Sequence[tuple[int | str, ...]],
        *,
        deadline: Deadline | None = None,
    ) -> list[int]:
        """Send a request for each of ``values`` at once, for the price of little more than one."""
        opaques = [self._next_opaque() for _ in values]
        if self._options.credentials is None and self._options.serializer is Serializer.JSON:
            parts: list[Buffer] = [
                template.frame(opaque, *each) for opaque, each in zip(opaques, values, strict=True)
            ]
        else:
            parts = [
                self._encode(template.request(*each), b"", opaque, 0)[0]
                for opaque, each in zip(opaques, values, strict=True)
            ]
        self._request(opaques, parts, deadline)
        return opaques

    def post(self, request: RequestHeader, body: Buffer = b"", *, deadline: Deadline | None = None) -> None:
        """Send a one-way request: the server answers nothing, not even an error."""
        self._check()
        parts = self._encode(request, body, self._next_opaque(), FLAG_ONE_WAY)
        self._send(parts, deadline or self._deadline())

    def wait(self, opaque: int, deadline: Deadline) -> Response:
        """Wait for the answer to one request."""
        return self.wait_some((opaque,), deadline)[0][1]

    def wait_some(self, opaques: Collection[int], deadline: Deadline) -> list[tuple[int, Response]]:
        """Wait for an answer to any of these requests, and return all that are here.

        Raises
        ------
        RequestTimeoutError
            The deadline passed; the requests stay in flight until abandoned.
        """
        looked = False  # at least once, also when the time was up before: the answer may be here unread
        while True:
            with self._turn:
                answers = self._answers
                here = [(opaque, answers.pop(opaque)) for opaque in opaques if opaque in answers]
                if here:
                    return here
                self._check()
                if looked and deadline.expired:
                    raise self._overdue(deadline)
                looked = True
                if self._leading:
                    self._turn.wait(deadline.remaining_s)
                    continue
                self._leading = True
            self._lead(deadline.remaining_s)

    def poll(self, timeout_s: float = 0.0) -> None:
        """Receive what is there or comes within ``timeout_s``, unless another thread does; notice an end."""
        with self._turn:
            if self._leading or self._error is not None:
                return
            self._leading = True
        self._lead(timeout_s)

    def abandon(self, *opaques: int) -> None:
        """Forget requests: their answers are dropped when they come."""
        with self._turn:
            for opaque in opaques:
                self._pending.discard(opaque)
                self._answers.pop(opaque, None)

    def close(self) -> None:
        """Close the connection; whoever waits gets ConnectionLostError."""
        self._fail(ConnectionLostError("the connection was closed", addr=self.addr))
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        with self._turn:  # the leader wakes up by the shutdown; a closed selector would let it sleep on
            self._turn.wait_for(lambda: not self._leading, timeout=1.0)
        with self._io:
            self._selector.close()
            self._sock.close()

    def forget(self) -> None:
        """Close this process's copies of the descriptors only: for a child that inherited them by a fork."""
        self._error = ConnectionLostError("the connection belongs to the parent process", addr=self.addr)
        self._selector.close()
        self._sock.close()

    # --- sending ---

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._options.request_timeout_ms)

    def _next_opaque(self) -> int:
        return next(self._opaques) & _MAX_OPAQUE

    def _encode(self, request: RequestHeader, body: Buffer, opaque: int, flag: int) -> Sequence[Buffer]:
        fields = request.fields(self._options.namespace)
        if self._options.credentials is not None:
            fields = sign(fields, body, self._options.credentials)
        command = Command(code=request.CODE, opaque=opaque, flag=flag, fields=fields)
        head = encode_frame_head(command, len(body), serializer=self._options.serializer)
        return (b"".join((head, body)),) if len(body) < _LARGE_BODY else (head, body)

    def _request(self, opaques: Collection[int], parts: Sequence[Buffer], deadline: Deadline | None) -> None:
        """Expect answers to these requests and send them."""
        with self._turn:
            self._check()
            self._pending.update(opaques)
        try:
            self._send(parts, deadline or self._deadline())
        except RequestTimeoutError:
            self.abandon(*opaques)
            raise

    def _send(self, parts: Sequence[Buffer], deadline: Deadline) -> None:
        """Queue the parts of frames and drive the socket until the queue is empty, reading all the while."""
        if self._wire_log is not None:
            self._wire_log.sent(b"".join(parts))
        with self._io:
            large = any(len(part) >= _LARGE_BODY for part in parts)
            self._outgoing.extend(map(memoryview, parts if large else (b"".join(parts),)))
            self._flush()
        while self._outgoing:
            self._check()
            deadline.check("the peer takes no more requests", addr=self.addr)
            with self._turn:
                lead = not self._leading
                self._leading = True
                if not lead:  # another thread reads and may sleep at it, so this one sends
                    self._turn.wait(min(deadline.remaining_s, 0.01))
            if lead:
                self._lead(deadline.remaining_s)
            else:
                with self._io:
                    self._flush()

    def _flush(self) -> None:
        """Send what the socket takes without blocking; the caller holds ``_io``."""
        outgoing = self._outgoing
        while outgoing and self._error is None:
            view = outgoing[0]
            try:
                sent = self._sock.send(view)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except (OSError, ValueError) as cause:
                self._fail(self._lost(cause))
                return
            if sent == len(view):
                outgoing.popleft()
            else:
                outgoing[0] = view[sent:]

    # --- receiving ---

    def _lead(self, timeout_s: float) -> None:
        """Take one turn at the socket on behalf of everybody; the caller has set ``_leading``."""
        delivered: list[Response] = []
        try:
            if not (self._may_have_more and self._receive(delivered)):
                self._sleep(timeout_s)
                self._receive(delivered)
        except (OSError, ValueError, KeyError) as cause:  # the selector of a connection closed meanwhile
            self._fail(self._lost(cause))
        except RemoteProtocolError as error:
            error.facts.setdefault("addr", self.addr)
            self._fail(error)
        finally:
            with self._turn:
                for response in delivered:
                    opaque = response.command.opaque
                    if opaque in self._pending:  # else: abandoned, or an answer to nothing we asked
                        self._pending.discard(opaque)
                        self._answers[opaque] = response
                self._leading = False
                self._turn.notify_all()

    def _sleep(self, timeout_s: float) -> None:
        """Wait until there is something to read, or room to write what waits for it."""
        if self._selects_writable != bool(self._outgoing):
            self._selects_writable = not self._selects_writable
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._selects_writable else 0)
            self._selector.modify(self._sock, events)
        self._selector.select(timeout_s)
        if self._outgoing:
            with self._io:
                self._flush()

    def _receive(self, delivered: list[Response]) -> bool:
        """Read once and take the frames that are whole; return whether anything was read."""
        try:
            with self._buffer.room() as room, self._io:
                received = self._sock.recv_into(room)
                # Bytes that TLS has read ahead do not wake up a poll.
                self._may_have_more = received == len(room) or isinstance(self._sock, ssl.SSLSocket)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._may_have_more = False
            return False
        except (OSError, ValueError) as cause:
            self._fail(self._lost(cause))
            return True
        if received == 0:
            self._fail(ConnectionLostError("the peer closed the connection", addr=self.addr))
            return True
        self._heard_at = self._clock.monotonic()
        self._buffer.received(received)
        for command, data, start, end in self._buffer.frames():
            if self._wire_log is not None:
                self._wire_log.received(command, end - start)
            if command.is_response:
                delivered.append(Response(command, self.addr, data, start, end))
            elif self.on_request is not None:
                self.on_request(command, memoryview(data)[start:end])
        return True

    # --- failing ---

    def _lost(self, cause: Exception) -> ConnectionLostError:
        error = ConnectionLostError(f"the connection broke: {cause}", addr=self.addr)
        error.__cause__ = cause
        return error

    def _fail(self, error: ConnectionLostError | RemoteProtocolError) -> None:
        """Make the connection useless; the first error is the one that everybody gets."""
        with self._turn:
            if self._error is None:
                self._error = error
            self._pending.clear()
            self._outgoing = deque()  # another one: a thread may be sending from the old one right now
            self._turn.notify_all()

    def _overdue(self, deadline: Deadline) -> RequestTimeoutError:
        """Return the error of a wait that is over; a peer that was silent all the while is given up.

        It may be half-open: the next request had better try a new connection.
        """
        error = RequestTimeoutError(
            f"no answer within {deadline.timeout_ms:.0f} ms", addr=self.addr, in_flight=len(self._pending)
        )
        silent_ms = (self._clock.monotonic() - self._heard_at) * 1000
        if silent_ms >= max(deadline.timeout_ms, _SILENCE_MS):
            self._fail(
                ConnectionLostError(f"the peer has been silent for {silent_ms:.0f} ms", addr=self.addr)
            )
        return error

    def _check(self) -> None:
        if self._error is not None:
            error = type(self._error)(self._error.message, **self._error.facts)
            raise error from self._error


def _connect(addr: str, options: ConnectionOptions) -> socket.socket:
    """Open the socket, with TLS if asked, and make it non-blocking."""
    host, port = split_address(addr)
    timeout_s = options.connect_timeout_ms / 1000
    try:
        sock = socket.create_connection((host, port), timeout=timeout_s)
    except OSError as cause:
        raise ConnectError(f"cannot connect: {cause}", addr=addr) from cause
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if options.tls is not None:
            context = options.tls.context()
            sock = context.wrap_socket(sock, server_hostname=options.tls.server_name or host)
    except OSError as cause:  # ssl.SSLError and a missing certificate file are OSErrors
        sock.close()
        raise ConnectError(f"no TLS session: {cause}", addr=addr) from cause
    sock.setblocking(False)
    return sock
