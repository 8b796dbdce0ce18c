"""A network with delays, partitions, half-open connections, narrow links and TLS, between simulated hosts."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from tests.simulation.scheduler import Process, Scheduler, Task

from pyspark_rocketmq.client.net.byte_stream import ByteStream
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.errors import ConnectError

__all__ = ["Habits", "Network", "Session"]

_WINDOW_BYTES: Final = 256 << 10
"""What a peer that does not read takes."""

_TLS_RECORD_BYTES: Final = 200
"""Of real ones up to 16 KiB: small, so that most answers are more than one."""

_PIECE_S: Final = 0.1
"""How long bytes are on a narrow link at most before the first of them arrive."""

_SHORT_S: Final = 0.1
"""A wait of this length may be for something else than an answer."""

_FOREVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Habits:
    """How the network of one life behaves when nothing is wrong.

    Parameters
    ----------
    delay_s, jitter_s : float
        One way; jitter is the mean of an exponential distribution.
    bytes_per_s : float
    short_reads, short_sends : float
        How often a call gets or gives only a part of what it could.
    tls : bool
        Bytes are read ahead in records, which a poll does not notice.
    """

    delay_s: float = 0.0005
    jitter_s: float = 0.0002
    bytes_per_s: float = 1e9
    short_reads: float = 0.0
    short_sends: float = 0.0
    tls: bool = False


class Listener(Protocol):
    """A server, as the network sees it."""

    name: str

    @property
    def accepts(self) -> bool | None:
        """Whether it listens; None: the machine is gone, and nobody refuses."""
        ...

    def received(self, session: Session, data: bytes) -> None:
        """Bytes have arrived."""
        ...

    def ended(self, session: Session) -> None:
        """A connection is gone, as far as the server knows."""
        ...


@dataclass(slots=True)
class _Direction:
    """Bytes under way, in order."""

    ready_at: float = 0.0
    parts: deque[tuple[float, bytes, float]] = field(default_factory=deque)
    """When each part arrives, its bytes, and when they were sent."""
    pumping: bool = False
    size: int = 0


class Network:
    """Connects processes with servers.

    Parameters
    ----------
    scheduler : Scheduler
    chance : random.Random
    habits : Habits
    ids : random.Random
        Gives the random parts of what processes name.
    """

    def __init__(
        self, scheduler: Scheduler, chance: random.Random, habits: Habits, ids: random.Random
    ) -> None:
        self.scheduler = scheduler
        self.chance = chance
        self.habits = habits
        self.piece = max(1, round(habits.bytes_per_s * _PIECE_S))
        self.ids = ids
        self.servers: dict[str, Listener] = {}
        self.sessions: dict[Session, None] = {}  # in the order of their making
        self.on_idle: Callable[[str], None] = lambda what: None
        """Told of a wait that timed out while no server owed anything."""
        self.slowness: dict[str, float] = {}
        """By server name: a delay added to each way (s)."""
        self._blocked: dict[tuple[str, str], float] = {}

    def block(self, process: str, server: str, seconds: float) -> None:
        """Let no byte through between a process and a server for some time."""
        self._blocked[process, server] = self.scheduler.now + seconds

    def heal(self) -> None:
        """Let everything through from now on, as fast as the habits are."""
        self._blocked.clear()
        self.slowness.clear()

    def hang_up(self, process: Process) -> None:
        """Close every connection of a process that has ended, as its kernel does."""
        for session in [session for session in self.sessions if session.process is process]:
            session.send_up(b"")

    def blocked_until(self, process: Process, server: Listener) -> float:
        """Return when bytes pass again: a moment that is past if they do."""
        return self._blocked.get((process.name, server.name), 0.0) if self._blocked else 0.0

    def delay_s(self, server: Listener) -> float:
        """Return how long the next byte takes, one way."""
        habits = self.habits
        delay_s = habits.delay_s
        if habits.jitter_s:
            delay_s -= math.log(1.0 - self.chance.random()) * habits.jitter_s  # expovariate, without its call
        return delay_s + self.slowness.get(server.name, 0.0) if self.slowness else delay_s

    def connect(self, process: Process, addr: str, options: ConnectionOptions) -> ByteStream:
        """Connect as a TCP stack does, with refusals and time-outs."""
        scheduler, timeout_s = self.scheduler, options.connect_timeout_ms / 1000
        server = self.servers.get(addr)
        accepts = None if server is None else server.accepts
        trip_s = _FOREVER if server is None else 2 * self.delay_s(server)
        if server is not None:
            trip_s = max(trip_s, self.blocked_until(process, server) - scheduler.now)
        if accepts is None or trip_s > timeout_s:
            scheduler.park(timeout_s)
            raise ConnectError("cannot connect: timed out", addr=addr)
        scheduler.park(trip_s)
        assert server is not None
        if not server.accepts:
            raise ConnectError("cannot connect: [Errno 111] Connection refused", addr=addr)
        return SimulatedStream(Session(self, process, server))


class Session:
    """An accepted connection: two directions, and the server's end of it."""

    def __init__(self, network: Network, process: Process, server: Listener) -> None:
        self.network = network
        self.process = process
        self.server = server
        self.buffer = b""
        """The server's: an unfinished frame."""
        self.half_open = False
        """Whether everything vanishes, without a word to either side."""
        self.open = True
        self.sent_s = 0.0
        """When the process sent what arrives now."""
        self.owed: dict[int, float] = {}
        """The server's: requests without an answer, and when they were sent."""
        self.stream: SimulatedStream | None = None
        self._up = _Direction()
        self._down = _Direction()
        network.sessions[self] = None

    @property
    def room(self) -> int:
        """How many bytes the way up takes now."""
        return max(0, _WINDOW_BYTES - self._up.size)

    @property
    def unsent(self) -> int:
        """How many bytes are on the way down."""
        return self._down.size

    @property
    def idle(self) -> bool:
        """Whether nothing is under way, and the server owes nothing."""
        quiet = not (self._up.size or self._down.size or self.owed or self.buffer)
        return quiet and self.open and not self.half_open

    def send_up(self, data: bytes) -> None:
        """Send to the server."""
        self._send(self._up, data, self._arrive_up)

    def send_down(self, data: bytes) -> None:
        """Send to the process."""
        if self.open:
            self._send(self._down, data, self._arrive_down)

    def break_off(self, *, silently: bool = False) -> None:
        """End it from the server's side: the process is told as soon as bytes pass, unless ``silently``."""
        if not self.open:
            return
        self.open = False
        self.network.sessions.pop(self, None)
        self.server.ended(self)
        if silently or self.half_open:
            self.half_open = True
        else:
            self._send(self._down, b"", self._arrive_down)

    def _send(self, direction: _Direction, data: bytes, arrive: Callable[[bytes], None]) -> None:
        network, piece = self.network, self.network.piece
        ready = max(network.scheduler.now + network.delay_s(self.server), direction.ready_at)
        if len(data) <= piece:
            ready += len(data) / network.habits.bytes_per_s
            direction.parts.append((ready, data, network.scheduler.now))
        else:  # what takes long arrives little by little
            for start in range(0, len(data), piece):
                part = data[start : start + piece]
                ready += len(part) / network.habits.bytes_per_s
                direction.parts.append((ready, part, network.scheduler.now))
        direction.ready_at = ready
        direction.size += len(data)
        if not direction.pumping:
            direction.pumping = True
            network.scheduler.at(direction.parts[0][0], self._pump, direction, arrive)

    def _pump(self, direction: _Direction, arrive: Callable[[bytes], None]) -> None:
        """Deliver what has arrived; wait where nothing passes."""
        scheduler, parts = self.network.scheduler, direction.parts
        open_at = self.network.blocked_until(self.process, self.server)
        if open_at > scheduler.now:
            scheduler.at(open_at + self.network.delay_s(self.server), self._pump, direction, arrive)
            return
        while parts and parts[0][0] <= scheduler.now:
            _, data, sent_s = parts.popleft()
            direction.size -= len(data)
            if direction is self._up:
                self.sent_s = sent_s
            if not self.half_open:
                arrive(data)
        direction.pumping = bool(parts)
        if parts:
            scheduler.at(parts[0][0], self._pump, direction, arrive)

    def _arrive_up(self, data: bytes) -> None:
        if self.stream is not None:
            self.stream.has_room()
        if not self.open:
            if self.stream is not None:
                self.stream.reset()
        elif data:
            self.server.received(self, data)
        else:
            self.break_off(silently=True)

    def _arrive_down(self, data: bytes) -> None:
        if self.stream is not None:
            self.stream.arrived(data)


class SimulatedStream:
    """A process's end of a connection."""

    def __init__(self, session: Session) -> None:
        self._session = session
        session.stream = self
        self._network = session.network
        self._scheduler = session.network.scheduler
        self._kernel = bytearray()
        self._ahead = bytearray()
        self._ended = False
        self._broken = False
        self._closed = False
        self._sleeper: Task | None = None
        self._writes = False
        """Whether who waits also waits for room."""
        self.reads_ahead = session.network.habits.tls

    # --- what the network does ---

    def arrived(self, data: bytes) -> None:
        """Bytes are there; none: the stream's end."""
        if data:
            self._kernel += data
        else:
            self._ended = True
        self.notice()

    def reset(self) -> None:
        """The peer does not know this connection."""
        self._broken = True
        self.notice()

    def has_room(self) -> None:
        """Wake who waits for room."""
        if self._writes:
            self.notice()

    def notice(self) -> None:
        """Wake who waits."""
        if self._sleeper is not None:
            self._scheduler.wake(self._sleeper)
            self._sleeper = None

    # --- what the code under test does ---

    def _check(self) -> None:
        if self._closed or self._session.process.dead:
            raise ValueError("closed")
        if self._broken:
            raise ConnectionResetError("Connection reset by peer")

    def send(self, data: memoryview) -> int | None:
        """See `ByteStream`."""
        self._check()
        size = min(len(data), self._session.room)
        if not size:
            return None
        if size > 1 and self._network.chance.random() < self._network.habits.short_sends:
            size = self._network.chance.randint(1, size)
        self._session.send_up(bytes(data[:size]))
        return size

    def receive_into(self, room: memoryview) -> int | None:
        """See `ByteStream`."""
        self._check()
        source = self._kernel
        if self.reads_ahead:
            self._ahead += self._kernel
            self._kernel.clear()
            source = self._ahead
        if not source:
            return 0 if self._ended else None
        size = min(len(room), len(source), _TLS_RECORD_BYTES if self.reads_ahead else len(source))
        if size > 1 and self._network.chance.random() < self._network.habits.short_reads:
            size = self._network.chance.randint(1, size)
        room[:size] = source[:size]
        del source[:size]
        return size

    def wait(self, timeout_s: float, *, writable: bool) -> bool | None:
        """See `ByteStream`."""
        self._check()
        if self._readable or (writable and self._session.room):
            return self._readable
        if timeout_s <= 0:
            return None
        self._sleeper, self._writes = self._scheduler.current(), writable
        begin_s = self._scheduler.now
        woken = self._scheduler.park(timeout_s)
        self._sleeper = None
        if self._closed:
            raise ValueError("closed")
        quiet = self._session.idle and not (self._ahead or self._readable)
        process = self._session.process
        froze = process.frozen_until > begin_s  # another thread may have taken the answer when it thawed
        if not woken and timeout_s > _SHORT_S and quiet and not froze and not process.listens:
            self._network.on_idle(f"{process.name} waits {timeout_s:.1f} s for {self._session.server.name}")
        return self._readable if woken else None

    @property
    def _readable(self) -> bool:
        return bool(self._kernel) or self._ended or self._broken

    def shut_down(self) -> None:
        """See `ByteStream`."""
        self._ended = True
        self.notice()

    def close(self) -> None:
        """See `ByteStream`."""
        if not self._closed:
            self._closed = True
            self.notice()
            self._session.send_up(b"")
