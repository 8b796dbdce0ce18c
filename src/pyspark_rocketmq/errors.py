"""Every error that the package raises, in one tree.

Callers decide by class; retries are decided by three flags only:

``retriable``
    The same call may succeed later, or elsewhere.
``stale_route``
    The route that led here is out of date: look it up anew before the next try.
``outage``
    The server is away or overloaded, whatever the request: worth waiting for.

Facts (topic, queue, address, offset, …) travel as keyword arguments and are part of the
message; none of them may ever be a secret.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "AuthenticationError",
    "BrokerError",
    "BrokerNotFoundError",
    "ConnectError",
    "ConnectionLostError",
    "CorruptMessageError",
    "DataLossError",
    "DevClusterError",
    "FlowControlError",
    "GroupNotFoundError",
    "LocalProtocolError",
    "MessageIllegalError",
    "NameServerError",
    "NoOffsetRangesError",
    "OptionError",
    "PermissionDeniedError",
    "PlanError",
    "PortTakenError",
    "ProtocolError",
    "RemoteProtocolError",
    "RequestTimeoutError",
    "RocketMQError",
    "RouteError",
    "SendError",
    "SendRefusedError",
    "ServiceNotAvailableError",
    "SqlError",
    "TopicNotFoundError",
    "TransactionFencedError",
    "TransportError",
    "UnsupportedRequestError",
]


class RocketMQError(Exception):
    """The root of the tree.

    Parameters
    ----------
    message : str
        What went wrong and what to do about it, in a sentence.
    **facts : Any
        Where it went wrong, as plain values (``topic="orders"``, ``addr="127.0.0.1:9876"``).
    """

    retriable: ClassVar[bool] = False
    stale_route: ClassVar[bool] = False
    outage: ClassVar[bool] = False

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts: dict[str, Any] = {name: value for name, value in facts.items() if value is not None}

    def __str__(self) -> str:
        if not self.facts:
            return self.message
        return f"{self.message} [{', '.join(f'{name}={value}' for name, value in self.facts.items())}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.__dict__)


def _rebuild(cls: type[RocketMQError], message: str, state: dict[str, Any]) -> RocketMQError:
    """Rebuild a pickled error without its constructor, whose arguments differ by class."""
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class OptionError(RocketMQError, ValueError):
    """A user's option or argument is unknown, malformed, or contradicts another one."""


class NoOffsetRangesError(RocketMQError, AttributeError):
    """The offset ranges of an RDD are asked for that has none (any more)."""


class PlanError(RocketMQError):
    """A pipeline cannot be compiled; names the step."""


class SqlError(RocketMQError):
    """A statement is wrong; says where in the text.

    Parameters
    ----------
    line, column : int
        Where, both counted from 1.
    """

    def __init__(self, message: str, *, line: int, column: int, **facts: Any) -> None:
        super().__init__(message, line=line, column=column, **facts)
        self.line = line
        self.column = column

    def __str__(self) -> str:
        others = ", ".join(f"{n}={value}" for n, value in self.facts.items() if n not in {"line", "column"})
        return f"line {self.line}, column {self.column}: {self.message}" + (f" [{others}]" if others else "")


class DevClusterError(RocketMQError):
    """An embedded RocketMQ did not come up or went away; carries the tail of its log.

    Parameters
    ----------
    log_tail : str
        The last lines of the process's log, shown below the message.
    """

    def __init__(self, message: str, *, log_tail: str = "", **facts: Any) -> None:
        super().__init__(message, **facts)
        self.log_tail = log_tail

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n--- last lines of its log ---\n{self.log_tail}" if self.log_tail else text


class PortTakenError(DevClusterError):
    """An embedded server cannot listen, because another process has its port."""


# --- the bytes ------------------------------------------------------------------------------


class ProtocolError(RocketMQError):
    """Bytes or calls that break the remoting protocol."""


class LocalProtocolError(ProtocolError):
    """We erred: a header that does not fit its declaration, a frame above the server's limit."""


class RemoteProtocolError(ProtocolError):
    """The peer erred: bytes that are not a remoting frame, or a body of another shape."""


class CorruptMessageError(RemoteProtocolError):
    """A stored message does not decode; names topic, queue and offset as far as they are known.

    ``breaks_layout`` tells that the record breaks the layout, so that those after it in the answer cannot be
    found.
    """

    breaks_layout: bool = False


# --- the wire -------------------------------------------------------------------------------


class TransportError(RocketMQError):
    """The network, not the answer, is at fault."""

    retriable = True
    outage = True


class ConnectError(TransportError):
    """No connection to the address within the deadline."""

    stale_route = True


class ConnectionLostError(TransportError):
    """The connection ended while requests were in flight; whether they took effect is unknown."""

    stale_route = True


class RequestTimeoutError(TransportError):
    """No answer within the deadline; whether the request took effect is unknown."""


# --- the route ------------------------------------------------------------------------------


class RouteError(RocketMQError):
    """The name servers do not lead to a broker that could serve the request."""


class TopicNotFoundError(RouteError):
    """No name server knows a route of the topic."""


class NameServerError(RouteError):
    """No address of the list answers as a name server does; says for each why.

    Not retriable: the name servers were already tried again for some seconds.
    """


class BrokerNotFoundError(RouteError):
    """The route names no (suitable) broker of this name; it may come back."""

    retriable = True
    outage = True
    stale_route = True


# --- the broker's answer --------------------------------------------------------------------


class BrokerError(RocketMQError):
    """A response whose code is not a success.

    Parameters
    ----------
    code : int
        The response code (``ResponseCode``).
    remark : str, optional
        What the server said.
    """

    def __init__(self, message: str, *, code: int, remark: str | None = None, **facts: Any) -> None:
        super().__init__(message, code=code, remark=remark, **facts)
        self.code = code
        self.remark = remark


class FlowControlError(BrokerError):
    """SYSTEM_BUSY or FLOW_CONTROL: the server asks for a pause; the request was not executed."""

    retriable = True
    outage = True


class ServiceNotAvailableError(BrokerError):
    """The server is stopping, full, not a master, or not the queue's owner: go elsewhere."""

    retriable = True
    outage = True
    stale_route = True


class PermissionDeniedError(BrokerError):
    """NO_PERMISSION for another reason than identity: perm bits, disabled group."""


class AuthenticationError(BrokerError):
    """The access key is missing, unknown, wrongly signed, or lacks the right."""


class GroupNotFoundError(BrokerError):
    """The broker does not know the group and may not create it."""


class MessageIllegalError(BrokerError):
    """The broker refuses the message for good: size, properties, topic, delay out of range."""


class UnsupportedRequestError(BrokerError):
    """The server does not know the request: an older broker, a proxy, or a VIP port."""


class SendRefusedError(BrokerError):
    """The broker did not store the message for a reason that another broker need not share.

    Stands for the codes on which ``DefaultMQProducer`` turns to another broker and whose own error is
    not retriable in other requests, such as SYSTEM_ERROR and NO_PERMISSION.
    """

    retriable = True
    stale_route = True


class SendError(RocketMQError):
    """Messages were not stored, or not as durably as asked, after all retries.

    Parameters
    ----------
    failed : int
        How many messages of the call failed.
    """

    def __init__(self, message: str, *, failed: int = 1, **facts: Any) -> None:
        super().__init__(message, failed=failed, **facts)
        self.failed = failed


class TransactionFencedError(RocketMQError):
    """Another process has taken over the transactions of a query or job: this one must not commit them."""


# --- the data -------------------------------------------------------------------------------


class DataLossError(RocketMQError):
    """Messages that should be read are not there any more.

    Parameters
    ----------
    condition : str
        The named condition, such as ``OFFSETS_EXPIRED``, ``QUEUE_LOST`` or ``OFFSET_WENT_BACK``.
    """

    def __init__(self, message: str, *, condition: str, **facts: Any) -> None:
        super().__init__(message, condition=condition, **facts)
        self.condition = condition
