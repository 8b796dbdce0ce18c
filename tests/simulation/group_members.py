"""Who is in which consumer group, as brokers know it: by connections that sent heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.network import Session
from tests.simulation.scheduler import Scheduler

from pyspark_rocketmq.remoting.body.shape import read
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.command import FLAG_ONE_WAY, Command
from pyspark_rocketmq.remoting.frame import Frame, encode_frame
from pyspark_rocketmq.remoting.header import NotifyConsumerIdsChangedRequest

__all__ = ["GroupMembers"]

_FORGETS_S: Final = 120.0
_LOOKS_S: Final = 10.0


@dataclass(slots=True)
class _Member:
    group: str
    client_id: str
    session: Session
    heard_s: float


@dataclass(slots=True)
class GroupMembers:
    """The members that registered at one server.

    Facts (ConsumerManager, DefaultConsumerIdsChangeListener; RocketMQ 5.4): a member whose connection ends is
    removed at once, one that is silent after 120 s (looked at every 10 s); the others are notified.

    Parameters
    ----------
    scheduler : Scheduler
    on_removed : Callable
        Told why a member was removed.
    """

    scheduler: Scheduler
    on_removed: Callable[[str], None]
    _members: dict[tuple[str, str], _Member] = field(default_factory=dict)
    _looks: bool = False

    def by_group(self) -> dict[str, set[str]]:
        """Return the members of each group."""
        found: dict[str, set[str]] = {}
        for group, client_id in self._members:
            found.setdefault(group, set()).add(client_id)
        return found

    def executed(self, session: Session, frame: Frame) -> None:
        """Learn from a request."""
        match frame.command.code:
            case RequestCode.HEART_BEAT:
                body = read(frame.body, "heartbeat")
                for data in body["consumerDataSet"].elements():
                    self._beat(data["groupName"].string(), body["clientID"].string(""), session)
            case RequestCode.UNREGISTER_CLIENT:
                fields: Mapping[str, str] = frame.command.fields
                self._remove(fields.get("consumerGroup", ""), fields.get("clientID", ""), "left")

    def ended(self, session: Session) -> None:
        """Forget the members of a connection."""
        for group, client_id in [key for key, each in self._members.items() if each.session is session]:
            self._remove(group, client_id, "disconnected")

    def _beat(self, group: str, client_id: str, session: Session) -> None:
        known = self._members.get((group, client_id))
        self._members[group, client_id] = _Member(group, client_id, session, self.scheduler.now)
        if known is None or known.session is not session:
            self._notify(group, but=client_id)
        if not self._looks:
            self._looks = True
            self.scheduler.after(_LOOKS_S, self._look)

    def _look(self) -> None:
        for (group, client_id), each in tuple(self._members.items()):
            if self.scheduler.now - each.heard_s > _FORGETS_S:
                self._remove(group, client_id, "silent")
        self._looks = bool(self._members)
        if self._looks:
            self.scheduler.after(_LOOKS_S, self._look)

    def _remove(self, group: str, client_id: str, how: str) -> None:
        if self._members.pop((group, client_id), None) is not None:
            self.on_removed(how)
            self._notify(group, but=client_id)

    def _notify(self, group: str, *, but: str) -> None:
        request = NotifyConsumerIdsChangedRequest(consumer_group=group)
        command = Command(code=request.CODE, opaque=0, flag=FLAG_ONE_WAY, fields=request.fields())
        data = encode_frame(command, b"")
        for each in tuple(self._members.values()):
            if each.group == group and each.client_id != but and each.session.open:
                each.session.send_down(bytes(data))
