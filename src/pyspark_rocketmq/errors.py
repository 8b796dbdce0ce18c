"""Every error that the package raises, in one tree.

Callers distinguish errors by class. Retries depend on three flags only:

``retriable``
    The same call may succeed later, or at another server.
``stale_route``
    The route is outdated: refresh it before the next attempt.
``outage``
    The server is down or overloaded, independent of the request: the caller may wait for it.

Facts (topic, queue, address, offset, …) are keyword arguments and part of the message. They must never
contain a secret.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

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
    "PySparkRequiredError",
    "RemoteProtocolError",
    "RequestTimeoutError",
    "RocketMQError",
    "RouteError",
    "SendError",
    "SendRefusedError",
    "ServiceNotAvailableError",
    "SqlError",
    "TopicExistsError",
    "TopicNotFoundError",
    "TransactionFencedError",
    "TransportError",
    "UnsupportedRequestError",
]


class RocketMQError(Exception):
    """Base of all errors of this package.

    Parameters
    ----------
    message : str
        What failed and what to do about it, in one sentence.
    **facts : Any
        Where it failed, as plain values (``topic="orders"``, ``addr="127.0.0.1:9876"``).
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

    def with_facts(self, **facts: Any) -> Self:
        """Return the error with more facts, besides those that it has, for whoever met it there.

        Several tasks and threads get the error of a connection or route for which they waited together. Each
        adds its facts to a copy.
        """
        error = type(self).__new__(type(self), self.message)
        error.__dict__.update(self.__dict__)
        more = {name: value for name, value in facts.items() if value is not None and name not in self.facts}
        error.facts = {**self.facts, **more}
        if notes := getattr(self, "__notes__", None):
            error.__notes__ = [*notes]
        error.__cause__, error.__context__ = self.__cause__, self.__context__
        error.__suppress_context__ = self.__suppress_context__
        return error.with_traceback(self.__traceback__)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.__dict__)


def _rebuild(cls: type[RocketMQError], message: str, state: dict[str, Any]) -> RocketMQError:
    """Rebuild a pickled error without its constructor, whose arguments differ by class."""
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class OptionError(RocketMQError, ValueError):
    """An option or argument is unknown, malformed, or contradicts another one."""


class NoOffsetRangesError(RocketMQError, AttributeError):
    """``offsetRanges`` was called on an RDD that does not have its ranges any more."""


class PySparkRequiredError(RocketMQError, ImportError):
    """What was imported needs PySpark, which is missing or too old."""


class PlanError(RocketMQError):
    """A pipeline cannot be compiled. The error names the step."""


class SqlError(RocketMQError):
    """A statement is invalid.

    Parameters
    ----------
    line, column : int
        The position in the text; both start at 1.
    """

    def __init__(self, message: str, *, line: int, column: int, **facts: Any) -> None:
        super().__init__(message, line=line, column=column, **facts)
        self.line = line
        self.column = column

    def __str__(self) -> str:
        others = ", ".join(f"{n}={value}" for n, value in self.facts.items() if n not in {"line", "column"})
        return f"line {self.line}, column {self.column}: {self.message}" + (f" [{others}]" if others else "")


class DevClusterError(RocketMQError):
    """An embedded RocketMQ failed to start or stopped unexpectedly.

    Parameters
    ----------
    log_tail : str
        The last lines of the process's log, shown after the message.
    """

    def __init__(self, message: str, *, log_tail: str = "", **facts: Any) -> None:
        super().__init__(message, **facts)
        self.log_tail = log_tail

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n--- last lines of its log ---\n{self.log_tail}" if self.log_tail else text


class PortTakenError(DevClusterError):
    """An embedded server cannot listen, because another process uses its port."""


# --- the bytes ------------------------------------------------------------------------------


class ProtocolError(RocketMQError):
    """Bytes or calls that violate the remoting protocol."""


class LocalProtocolError(ProtocolError):
    """A violation by this client: a header that does not match its declaration, a frame above the limit."""


class RemoteProtocolError(ProtocolError):
    """A violation by the peer: bytes that are not a remoting frame, or a malformed body."""


class CorruptMessageError(RemoteProtocolError):
    """A stored message cannot be decoded. Names topic, queue and offset as far as they are known.

    ``breaks_layout`` means that the record's layout is invalid, so that the records after it in the response
    cannot be located.
    """

    breaks_layout: bool = False


# --- the wire -------------------------------------------------------------------------------


class TransportError(RocketMQError):
    """A failure of the network, not of the request."""

    retriable = True
    outage = True


class ConnectError(TransportError):
    """No connection to the address was established within the deadline."""

    stale_route = True


class ConnectionLostError(TransportError):
    """The connection was lost while requests were in flight. Whether they took effect is unknown."""

    stale_route = True


class RequestTimeoutError(TransportError):
    """No response within the deadline. Whether the request took effect is unknown."""

    arriving: tuple[int, int] | None = None
    """The number of responses that the connection had received, and the bytes of the next one so far."""


# --- the route ------------------------------------------------------------------------------


class RouteError(RocketMQError):
    """The name servers provide no broker that can serve the request."""


class TopicNotFoundError(RouteError):
    """No name server has a route of the topic."""


class TopicExistsError(RocketMQError):
    """A topic to create exists with other settings. It was not changed."""


class NameServerError(RouteError):
    """No address of the list responds as a name server. Contains the cause for each address.

    Not retriable: the request was already retried for some seconds.
    """


class BrokerNotFoundError(RouteError):
    """The route has no (suitable) broker of this name. The broker may return."""

    retriable = True
    outage = True
    stale_route = True


# --- the broker's answer --------------------------------------------------------------------


class BrokerError(RocketMQError):
    """A response with an error code.

    Parameters
    ----------
    code : int
        The response code (``ResponseCode``).
    remark : str, optional
        The server's remark.
    """

    def __init__(self, message: str, *, code: int, remark: str | None = None, **facts: Any) -> None:
        super().__init__(message, code=code, remark=remark, **facts)
        self.code = code
        self.remark = remark


class FlowControlError(BrokerError):
    """SYSTEM_BUSY or FLOW_CONTROL: the server is overloaded and did not execute the request."""

    retriable = True
    outage = True


class ServiceNotAvailableError(BrokerError):
    """The server is stopping, full, not a master, or not the queue's owner: use another server."""

    retriable = True
    outage = True
    stale_route = True


class PermissionDeniedError(BrokerError):
    """NO_PERMISSION not caused by identity: permission bits, disabled group."""


class AuthenticationError(BrokerError):
    """The access key is missing, unknown, has an invalid signature, or lacks the permission."""


class GroupNotFoundError(BrokerError):
    """The group does not exist at the broker, and automatic creation is disabled."""


class MessageIllegalError(BrokerError):
    """The broker rejects the message permanently: size, properties, topic, or delay out of range."""


class UnsupportedRequestError(BrokerError):
    """The server does not support the request: an older broker, a proxy, or a VIP port."""


class SendRefusedError(BrokerError):
    """The broker did not store the message, but another broker may.

    Covers the codes on which ``DefaultMQProducer`` tries another broker and whose error class is not
    retriable in other requests, such as SYSTEM_ERROR and NO_PERMISSION.
    """

    retriable = True
    stale_route = True


class SendError(RocketMQError):
    """Messages were not stored, or not as durably as required, after all retries; the message says which.

    If the answer to an attempt did not come, it says "perhaps stored".

    Parameters
    ----------
    failed : int
        Number of messages of the call that failed.
    """

    def __init__(self, message: str, *, failed: int = 1, **facts: Any) -> None:
        super().__init__(message, failed=failed, **facts)
        self.failed = failed


class TransactionFencedError(RocketMQError):
    """Another process has taken over the transactions of the query or job: this one must not commit them."""


# --- the data -------------------------------------------------------------------------------


class DataLossError(RocketMQError):
    """Messages that should be read no longer exist.

    Parameters
    ----------
    condition : str
        The named condition, such as ``OFFSETS_EXPIRED``, ``QUEUE_LOST`` or ``OFFSET_WENT_BACK``.
    """

    def __init__(self, message: str, *, condition: str, **facts: Any) -> None:
        super().__init__(message, condition=condition, **facts)
        self.condition = condition
