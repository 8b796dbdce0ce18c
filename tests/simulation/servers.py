"""Simulated servers: they take frames, execute them as the mock broker does, and answer, late or never."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tests.simulation.network import Network, Session

from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame, decode_frame
from pyspark_rocketmq.testing.wire import Reply, encode_reply

__all__ = ["Answering", "Mischief", "Server", "State"]

_SERVICE_S: Final = 0.0002


class State(enum.Enum):
    """What a server's machine does."""

    RUNS = "runs"
    KILLED = "killed"
    """The process is gone: connections are reset, new ones refused."""
    VANISHED = "vanished"
    """The machine is gone: nobody answers at all."""
    PAUSED = "paused"
    """The process is stopped: what arrives is executed when it goes on."""


class Answering(enum.Enum):
    """What goes wrong with one request."""

    REFUSED = "refused"
    DONE_SILENTLY = "executed, no answer"
    IGNORED = "not executed, no answer"
    DONE_HUNG_UP = "executed, connection closed"
    HUNG_UP = "not executed, connection closed"
    LATE = "executed, answered late"
    SHORT = "few messages"
    CUT = "answer cut off"
    REPEATED = "answered twice"
    OTHERWISE = "executed, answered with another code"


@dataclass(slots=True)
class Mischief:
    """Something that goes wrong with some of the next requests.

    Parameters
    ----------
    how : Answering
    codes : frozenset of int
        Of requests; empty for all.
    times : int
        How many requests are left.
    code : int
        Of a refusal, or of an answer with another code.
    late_s : float
    remark : str
        Of a refusal.
    what : str
        What is counted, instead of ``how`` alone.
    """

    how: Answering
    codes: frozenset[int]
    times: int
    code: int = ResponseCode.SYSTEM_BUSY
    late_s: float = 0.0
    remark: str = "as the seed says"
    what: str = ""


Handler = Callable[[Frame, int | None], Reply | None]


@dataclass(slots=True, eq=False)
class Server:
    """A name server, or one replica of a broker.

    Parameters
    ----------
    network : Network
    addr, name : str
    handle : Callable
        Executes a request; the number limits the messages of a pull's answer. None: there is no answer.
    water_mark : int, optional
        Answers are dropped while a connection holds more bytes that are not sent yet.
    """

    network: Network
    addr: str
    name: str
    handle: Handler
    state: State = State.KILLED
    water_mark: int | None = None
    mischief: list[Mischief] = field(default_factory=list)
    on_executed: Callable[[Session, Frame, Reply], None] = lambda session, frame, reply: None
    on_ended: Callable[[Session], None] = lambda session: None
    happened: Counter[str] = field(default_factory=Counter)
    _held: list[tuple[Session, Frame]] = field(default_factory=list)
    _suspended: list[tuple[Session, Frame, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.network.servers[self.addr] = self

    @property
    def accepts(self) -> bool | None:
        """See `Listener`: a stopped process's kernel still accepts."""
        state = self.state
        return None if state is State.VANISHED else state is not State.KILLED

    @property
    def running(self) -> bool:
        """Whether it executes requests now."""
        return self.state is State.RUNS

    # --- life ---

    def start(self) -> None:
        """Start, or go on after a pause."""
        self.state = State.RUNS
        held, self._held = self._held, []
        for session, frame in held:
            self._schedule(session, frame)

    def stop(self, state: State) -> None:
        """Be killed, vanish or pause."""
        self.state = state
        if state is State.PAUSED:
            return
        self._held.clear()
        self._suspended.clear()
        for session in self.sessions():
            session.break_off(silently=state is State.VANISHED)

    def sessions(self) -> list[Session]:
        """Return its open connections, in the order of their making."""
        return [session for session in self.network.sessions if session.server is self]

    def ended(self, session: Session) -> None:
        """See `Listener`."""
        self.on_ended(session)

    # --- requests ---

    def received(self, session: Session, data: bytes) -> None:
        """See `Listener`."""
        if session.buffer:
            data = session.buffer + data
        at = 0
        while len(data) - at >= 4:
            end = at + int.from_bytes(data[at : at + 4], "big") + 4
            if len(data) < end:
                break
            frame = decode_frame(memoryview(data)[at:end])
            at = end
            if not frame.command.is_one_way:
                session.owed[frame.command.opaque] = session.sent_s
            if self.state is State.PAUSED:
                self._held.append((session, frame))
            else:
                self._schedule(session, frame)
        session.buffer = data[at:]

    def _schedule(self, session: Session, frame: Frame) -> None:
        delay_s = _SERVICE_S * (1 + self.network.chance.random())
        self.network.scheduler.after(delay_s, self._execute, session, frame)

    def _execute(self, session: Session, frame: Frame) -> None:
        if self.state is State.PAUSED:
            self._held.append((session, frame))
        elif self.state is State.RUNS and session.open:
            self._answer(session, frame, self._mischief_for(frame.command.code))

    def _mischief_for(self, code: int) -> Mischief | None:
        for one in self.mischief:
            if one.times and (not one.codes or code in one.codes):
                one.times -= 1
                self.happened[one.how.value] += 1
                if one.what:
                    self.happened[f"{one.what}: answered"] += 1
                return one
        return None

    def _answer(self, session: Session, frame: Frame, wrong: Mischief | None) -> None:
        how = wrong.how if wrong is not None else None
        if wrong is not None and how is Answering.REFUSED:
            self._send(session, frame, Reply(wrong.code, remark=wrong.remark))
            return
        if how is Answering.HUNG_UP:
            session.break_off()
            return
        if how is Answering.IGNORED:
            return
        reply = self.handle(frame, 1 if how is Answering.SHORT else None)
        if reply is None:
            return
        self.on_executed(session, frame, reply)
        if how is Answering.DONE_HUNG_UP:
            session.break_off()
        elif wrong is not None and how is Answering.LATE:
            self.network.scheduler.after(wrong.late_s, partial(self._send, session, frame, reply))
        elif wrong is not None and how is Answering.OTHERWISE:
            self._send(session, frame, reply if reply.code else replace(reply, code=ResponseCode(wrong.code)))
        elif how is Answering.CUT:
            data = encode_reply(frame, reply)
            session.send_down(data[: self.network.chance.randint(1, len(data) - 1)])
            session.break_off()
        elif how is Answering.REPEATED:
            self._send(session, frame, reply)
            self._send(session, frame, reply)
        elif how is not Answering.DONE_SILENTLY:
            self._send_or_suspend(session, frame, reply)

    def _send_or_suspend(self, session: Session, frame: Frame, reply: Reply) -> None:
        if reply.wait_ms is None:
            self._send(session, frame, reply)
            return
        scheduler = self.network.scheduler
        suspended = (session, reply.again or frame, scheduler.now + reply.wait_ms / 1000)
        self._suspended.append(suspended)
        scheduler.at(suspended[2], partial(self._give_up, suspended))

    def _give_up(self, suspended: tuple[Session, Frame, float]) -> None:
        if suspended in self._suspended and self.state is State.RUNS:
            self._suspended.remove(suspended)
            session, frame, _ = suspended
            reply = self.handle(frame, None)
            if reply is not None:
                self._send(session, frame, reply)

    def news(self) -> None:
        """Messages were stored: suspended pulls look again."""
        for suspended in tuple(self._suspended):
            session, frame, _ = suspended
            reply = self.handle(frame, None)
            if reply is not None and reply.wait_ms is None:
                self._suspended.remove(suspended)
                self._send(session, frame, reply)

    def _send(self, session: Session, frame: Frame, reply: Reply) -> None:
        if reply.code:
            self.happened[f"answer: {_name(reply)}"] += 1
        if self.water_mark is not None and session.unsent > self.water_mark:
            self.happened["a proxy drops an answer"] += 1
        elif not frame.command.is_one_way:
            session.owed.pop(frame.command.opaque, None)
            session.send_down(encode_reply(frame, reply))


def _name(reply: Reply) -> str:
    """Return the code of an answer and, of a pull, what the store says."""
    code = ResponseCode(reply.code).name
    return f"{code}, {reply.remark}" if reply.remark and reply.remark.isupper() else code


PULLS: Final = frozenset({RequestCode.PULL_MESSAGE})
SENDS: Final = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
OFFSETS: Final = frozenset({RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET})
ROUTES: Final = frozenset({RequestCode.GET_ROUTEINFO_BY_TOPIC})
COMMITS: Final = frozenset({RequestCode.END_TRANSACTION})
SETTINGS: Final = frozenset({RequestCode.GET_TOPIC_CONFIG})
MEMBERS: Final = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    }
)
