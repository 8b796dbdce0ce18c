"""One TCP connection to a name server or broker: pipelined requests, without a thread.

Any number of requests may be in flight; the server answers them in any order and the opaque number pairs them
up. Whoever waits for an answer reads the socket for everybody (leader and followers), so there is no
background thread to own, to stop, or to lose in a fork. Bytes are received into large buffers and answers are
returned as views of them: a pull's records are copied once, by the decoder.

A writer never stops reading: a server that cannot get rid of its answers stops taking requests, and a client
that only writes would wait forever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.client.net.frame_socket import FrameSocket, Received, encode_request
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host
from pyspark_rocketmq.client.net.wire_log import WireLog
from pyspark_rocketmq.errors import ConnectionLostError, RemoteProtocolError, RequestTimeoutError
from pyspark_rocketmq.remoting.command import FLAG_ONE_WAY, Buffer, Command
from pyspark_rocketmq.remoting.failure import error_for
from pyspark_rocketmq.remoting.request_numbers import RequestNumbers
from pyspark_rocketmq.remoting.template import Request, RequestTemplate, TemplatedRequest

__all__ = ["Connection", "Response"]

_DRAINED_BYTES: Final = 64 << 20
"""More than the kernel buffers for a connection: reading what has arrived ends after this many bytes."""

_ARRIVING_BYTES: Final = 4_096  # of an answer in one time-out: with fewer, it does not count as arriving

_SILENCE_MS: Final = 250
"""A peer that sends nothing during a whole deadline of at least this length is considered half-open. Its
connection is closed, as Java's client does after any time-out (``clientCloseSocketIfTimeout``)."""

RequestHandler = Callable[[Command, memoryview], None]


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
        """The server's remark; some successful answers have one, too."""
        return self.command.remark

    @property
    def fields(self) -> Mapping[str, str]:
        """The response header's fields."""
        return self.command.fields

    def require(self, *codes: int, **facts: object) -> Response:
        """Return the answer if its code is one of ``codes`` (default: 0), else raise its error."""
        if self.code in (codes or (0,)):
            return self
        raise error_for(self.code, self.remark, **{**facts, "addr": self.addr})


class Connection:
    """A connected socket; safe to share between threads, not between processes.

    Parameters
    ----------
    addr : str
        ``host:port``.
    options : ConnectionOptions
    clock : Clock
    host : Host

    Raises
    ------
    ConnectError
        If there is no connection (or no TLS session) within ``connect_timeout_ms``.
    """

    def __init__(
        self, addr: str, options: ConnectionOptions, clock: Clock = SYSTEM_CLOCK, host: Host = SYSTEM_HOST
    ) -> None:
        self.addr = addr
        self._options = options
        self._clock = clock
        self._host = host
        self._wire_log = WireLog(addr, clock, options.credentials) if options.wire_log else None
        self._socket = FrameSocket(host.connect(addr, options), addr)
        self._turn = host.condition()  # everything below; never held while the socket is used
        self._leading = False
        self._numbers = RequestNumbers()
        self._pending: set[int] = set()
        self._answers: dict[int, Response] = {}
        self._requests: deque[Received] = deque()
        self.heard_at = clock.monotonic()
        self._error: ConnectionLostError | RemoteProtocolError | None = None
        self.on_request: RequestHandler | None = None
        """Called with each request that the server makes; such requests are ignored without it."""

    def __repr__(self) -> str:
        return (
            f"Connection({self.addr}, in_flight={self.in_flight}, unclaimed={self.unclaimed}, "
            f"alive={self.alive})"
        )

    @property
    def alive(self) -> bool:
        """Whether the connection has not failed so far."""
        return self._error is None

    @property
    def in_flight(self) -> int:
        """The number of requests without an answer."""
        return len(self._pending)

    def has_answer(self, opaque: int) -> bool:
        """Whether the answer to a request has arrived and waits to be taken."""
        return opaque in self._answers

    @property
    def unclaimed(self) -> int:
        """The number of answers that no thread has taken so far."""
        return len(self._answers)

    def call(self, request: Request, body: Buffer = b"", *, deadline: Deadline | None = None) -> Response:
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

    def submit(self, request: Request, body: Buffer = b"", *, deadline: Deadline | None = None) -> int:
        """Send a request and return its opaque number: wait for its answer, or abandon it."""
        return self.submit_all([(request, body)], deadline=deadline)[0]

    def submit_all(
        self, requests: Sequence[tuple[Request, Buffer]], *, deadline: Deadline | None = None
    ) -> list[int]:
        """Send requests and their bodies together; returns their opaque numbers, as `submit` does."""
        opaques = [self._numbers.take() for _ in requests]
        parts: list[Buffer] = []
        for opaque, (request, body) in zip(opaques, requests, strict=True):
            parts += encode_request(self._options, request, body, opaque, 0)
        self._request(opaques, parts, deadline)
        return opaques

    def submit_many(
        self,
        template: RequestTemplate,
        values: Sequence[tuple[int | str, ...]],
        *,
        deadline: Deadline | None = None,
    ) -> list[int]:
        """Send a request for each of ``values`` together, which costs little more than one request."""
        requests = [(TemplatedRequest(template, each), b"") for each in values]
        return self.submit_all(requests, deadline=deadline)

    def post(self, request: Request, body: Buffer = b"", *, deadline: Deadline | None = None) -> None:
        """Send a one-way request: the server never answers, not even with an error."""
        self._check()
        parts = encode_request(self._options, request, body, self._numbers.take(), FLAG_ONE_WAY)
        self._send(parts, deadline or self._deadline())

    def wait(self, opaque: int, deadline: Deadline) -> Response:
        """Wait for the answer to one request."""
        if (answer := self._answers.pop(opaque, None)) is not None:  # the common case in a pipeline
            return answer
        return self.wait_some((opaque,), deadline)[0][1]

    def wait_some(self, opaques: Collection[int], deadline: Deadline) -> list[tuple[int, Response]]:
        """Wait for an answer to any of these requests, and return all that have arrived.

        Raises
        ------
        RequestTimeoutError
            The deadline passed; the requests stay in flight until abandoned.
        """
        drained, seen = False, (0, 0)  # once the time is up: the answer may be here unread, or in pieces
        while True:
            with self._turn:
                answers = self._answers
                here = [(opaque, answers.pop(opaque)) for opaque in opaques if opaque in answers]
                if here:
                    return here
                self._check()
                if drained:
                    deadline.record_progress(self._numbers.answered_before(first := min(opaques)))
                    if self._socket.arrived_since(seen) >= _ARRIVING_BYTES and self._numbers.is_due(first):
                        deadline.record_progress(self.heard_at)
                    seen = self._socket.arriving
                    if deadline.expired:
                        raise self._overdue(deadline)
                    drained = False
                remaining_s = deadline.remaining_s
                if remaining_s > 0 and self._leading:
                    self._turn.wait(remaining_s)
                    continue
                self._leading = self._leading or remaining_s > 0
            if remaining_s > 0:
                self._lead(remaining_s)
            else:
                self._drain()
                drained = True

    def poll(self, timeout_s: float = 0.0) -> None:
        """Receive what arrives within ``timeout_s``, unless another thread does; detect an end."""
        with self._turn:
            if self._leading or self._error is not None:
                return
            self._leading = True
        self._lead(timeout_s)

    def abandon(self, *opaques: int) -> None:
        """Forget requests: their answers are dropped when they arrive."""
        with self._turn:
            for opaque in opaques:
                self._pending.discard(opaque)
                self._answers.pop(opaque, None)

    def close(self) -> None:
        """Close the connection. Threads that wait for an answer get ConnectionLostError."""
        self._fail(ConnectionLostError("the connection was closed", addr=self.addr))
        self._socket.shut_down()
        with self._turn:  # the leader wakes up by that; a closed selector would let it sleep on
            self._turn.wait_for(lambda: not self._leading, timeout=1.0)
        self._socket.close()

    def forget(self) -> None:
        """Close this process's copies of the descriptors only: for a child that inherited them by a fork."""
        self._error = ConnectionLostError("the connection belongs to the parent process", addr=self.addr)
        self._turn = self._host.condition()  # a thread of the parent may have held the one before
        self._socket.forget()

    # --- sending ---

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._options.request_timeout_ms)

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
        """Queue the parts of frames and write to the socket until the queue is empty, and read meanwhile."""
        if self._wire_log is not None:
            self._wire_log.log_sent(b"".join(parts))
        try:
            taken = self._socket.taken
            self._socket.send(parts)
            while self._socket.unsent:
                self._check()
                if self._socket.taken - taken >= max(map(len, parts)):  # as much as one request: others wait
                    taken = self._socket.taken
                    deadline.record_progress(self._clock.monotonic())
                deadline.check("the peer takes no more requests", addr=self.addr)
                with self._turn:
                    lead = not self._leading
                    self._leading = True
                    if not lead:  # another thread reads and may sleep at it, so this one sends
                        self._turn.wait(min(deadline.remaining_s, 0.01))
                if lead:
                    self._lead(deadline.remaining_s)
                else:
                    self._socket.flush()
        except ConnectionLostError as error:
            self._drain()  # answers to earlier requests may be here: what they tell is not lost
            self._fail(error)
        self._check()

    # --- receiving ---

    def _lead(self, timeout_s: float) -> None:
        """Send and receive once, for all waiting threads; the caller has set ``_leading``."""
        try:
            received = self._socket.may_have_more and self._receive()
            if not received and self._error is None and self._socket.sleep(timeout_s):
                self._receive()
            if not self._pending:
                self._socket.shrink()
        except ConnectionLostError as error:
            self._fail(error)
        finally:
            with self._turn:
                self._leading = False
                self._turn.notify_all()
        self._serve()

    def _receive(self) -> int:
        """Read once; return the number of bytes."""
        try:
            received = self._socket.receive(self._deliver)
        except (ConnectionLostError, RemoteProtocolError) as error:
            error.facts.setdefault("addr", self.addr)
            self._fail(error)
            return 0
        if received:
            self.heard_at = self._clock.monotonic()
        return received

    def _drain(self) -> None:
        """Receive what has arrived so far, before a wait counts as timed out."""
        drained = 0
        while drained < _DRAINED_BYTES and (received := self._receive()):
            drained += received
        self._serve()

    def _deliver(self, frames: list[Received]) -> None:
        """Store answers for the threads that wait for them, and queue the server's requests."""
        if self._wire_log is not None:
            for frame in frames:
                self._wire_log.log_received(frame.command, frame.end - frame.start)
        earliest = 0
        with self._turn:
            for frame in frames:
                command, buffer, start, end = frame
                if not command.is_response:
                    self._requests.append(frame)
                    continue
                earliest = min(earliest or command.opaque, command.opaque)
                if command.opaque in self._pending:  # else: abandoned, or an answer to nothing we asked
                    self._pending.discard(command.opaque)
                    self._answers[command.opaque] = Response(command, self.addr, buffer, start, end)
            if earliest:
                self._numbers.record_answer(earliest, self._clock.monotonic())
            self._turn.notify_all()

    def _serve(self) -> None:
        """Handle the server's requests, in a thread that does not keep others from reading."""
        while self._requests:
            try:
                frame = self._requests.popleft()
            except IndexError:  # another thread took it
                return
            if self.on_request is not None:
                self.on_request(frame.command, memoryview(frame.buffer)[frame.start : frame.end])

    # --- failing ---

    def _fail(self, error: ConnectionLostError | RemoteProtocolError) -> None:
        """Mark the connection as failed. All waiting threads get the first error."""
        with self._turn:
            if self._error is None:
                self._error = error
            self._pending.clear()
            self._socket.give_up()
            self._turn.notify_all()

    def _overdue(self, deadline: Deadline) -> RequestTimeoutError:
        """Return the error of a wait that timed out. A peer that sent nothing meanwhile may be half-open."""
        error = RequestTimeoutError(
            f"no answer within {deadline.timeout_ms:.0f} ms", addr=self.addr, in_flight=len(self._pending)
        )
        error.arriving = self._socket.arriving
        silent_ms = (self._clock.monotonic() - self.heard_at) * 1000
        if silent_ms >= deadline.timeout_ms >= _SILENCE_MS:
            self._fail(ConnectionLostError(f"the peer was silent for {silent_ms:.0f} ms", addr=self.addr))
        return error

    def _check(self) -> None:
        if self._error is not None:
            raise type(self._error)(self._error.message, **self._error.facts) from self._error
