"""From a response code to an error: the one mapping.

# Facts
#
# ``ResponseCode``, ``RemotingSysResponseCode``; remarks from ``DefaultAuthenticationHandler``,
# ``AclAuthorizationHandler``, ``UserAuthorizationHandler`` (5.4.0) and ``PlainAccessValidator`` (4.9).
#
# * 4.9 refuses an account with 1 and an AclException in the remark; 5.x with 16 and a sentence of its
#   own. 16 also stands for permission bits and disabled groups.
# * 15 is a proxy's answer to a request without a broker name, or a broker's to a bad header version.
# * The owner of a static topic's queue asks the former owners for their part, and answers 1 with the text of
#   an RpcException while it cannot: also for some seconds after a remap, until it knows where they are.
# * A proxy answers 13 to a message of another type than the topic's ``message.type``:
#   ``DefaultTopicMessageTypeValidator``. FIFO has a sharding key, DELAY a time; a batch is NORMAL, whatever
#   its messages are. MIXED takes all. UNSPECIFIED is a topic whose settings the proxy does not have.
# * A broker with ``coldDataFlowControlEnable`` limits what a group reads of old messages
#   (``PullMessageProcessor``, 5.5.0). It answers 2 to members of a group that is pushed to. For a group
#   without members it fails with 1 and a NullPointerException, since it asks how its members consume.
# * 17 of a broker means that this one does not have the topic (a new slave, a moved topic): the name
#   servers say whether it exists at all.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pyspark_rocketmq.errors import (
    AuthenticationError,
    BrokerError,
    FlowControlError,
    GroupNotFoundError,
    MessageIllegalError,
    PermissionDeniedError,
    ServiceNotAvailableError,
    UnsupportedRequestError,
)
from pyspark_rocketmq.remoting.codes import ResponseCode

__all__ = ["error_for", "limits_cold_data"]

_MAX_REMARK: Final = 2_000
"""Remarks may hold a Java stack trace; this much of one is kept."""

_ERRORS: Final[dict[int, tuple[type[BrokerError], str]]] = {
    ResponseCode.SYSTEM_BUSY: (FlowControlError, "the server is busy and did not execute the request"),
    ResponseCode.FLOW_CONTROL: (FlowControlError, "the server limits this client's requests"),
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: (
        UnsupportedRequestError,
        "the server does not know this request: it may be older, a proxy, a VIP port, or of another kind",
    ),
    ResponseCode.VERSION_NOT_SUPPORTED: (
        UnsupportedRequestError,
        "the server does not take this form of the request",
    ),
    ResponseCode.MESSAGE_ILLEGAL: (MessageIllegalError, "the broker rejects the message permanently"),
    ResponseCode.SERVICE_NOT_AVAILABLE: (ServiceNotAvailableError, "the server cannot serve the request"),
    ResponseCode.SLAVE_NOT_AVAILABLE: (
        ServiceNotAvailableError,
        "the broker has no slave, or is one, where the request needs the other",
    ),
    ResponseCode.TOPIC_NOT_EXIST: (ServiceNotAvailableError, "the server does not have the topic"),
    ResponseCode.NOT_LEADER_FOR_QUEUE: (ServiceNotAvailableError, "the queue moved to another broker"),
    ResponseCode.GO_AWAY: (ServiceNotAvailableError, "the server is stopping"),
    ResponseCode.NO_PERMISSION: (
        PermissionDeniedError,
        (
            "the server forbids the request: check the topic's permission, the group's consumeEnable and the "
            "broker's brokerPermission"
        ),
    ),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: (
        GroupNotFoundError,
        "the broker does not know the consumer group and may not create it",
    ),
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: (BrokerError, "the filter expression does not parse"),
}

_NAMES: Final = {int(code): code.name for code in ResponseCode}

_IDENTITY: Final = re.compile(
    r"username cannot be null|user:.* not found|user:.* is disabled|check signature failed"
    r"|has no permission to access|authentication failed|authorization failed",
    re.IGNORECASE,
)

_MESSAGE_TYPE: Final = re.compile(
    r"^TopicMessageType validate failed, the expected type is (\w+), but actual type is (\w+)"
)

_FORMER_OWNER: Final = re.compile(
    r"^cannot find addr for broker |^org\.apache\.rocketmq\.remoting\.rpc\.RpcException: "
    r"|^error from remoting layer$|^un(?:expected remote response code|known remote error)$"
    r"|^(?:send request failed to |wait response from |process failed\. addr: |unknown reason\. addr: )"
)
"""What ``RpcClientImpl`` says; with the class's name where the broker writes ``toString``."""

_COLD_DATA: Final = re.compile(
    r"^java\.lang\.NullPointerException\b.*(?:getConsumeType\(\)|PullMessageProcessor\.processRequest)",
    re.DOTALL,
)
"""The place where it happens, for Javas that do not name what is null."""


def error_for(code: int, remark: str | None, **facts: Any) -> BrokerError:
    """Return the error that an answer with this code stands for.

    Parameters
    ----------
    code : int
        The response code, listed in ``ResponseCode`` or not.
    remark : str or None
        What the server said; kept up to a bound.
    **facts : Any
        Where it happened (``topic``, ``addr``, …); never a secret.
    """
    if remark is not None and len(remark) > _MAX_REMARK:
        remark = f"{remark[:_MAX_REMARK]}…"
    cls, reason = _ERRORS.get(code, (BrokerError, "the server answered with an error"))
    if code == ResponseCode.SYSTEM_ERROR and _FORMER_OWNER.search(remark or ""):
        cls, reason = ServiceNotAvailableError, "the queue's owner cannot reach its former owner"
    if limits_cold_data(code, remark):
        cls, reason = FlowControlError, "the broker limits what a group reads of old messages"
    if code == ResponseCode.MESSAGE_ILLEGAL and (types := _MESSAGE_TYPE.match(remark or "")):
        cls, reason = _of_another_type(*types.groups())
    if _refuses_account(code, remark or ""):
        cls, reason = (
            AuthenticationError,
            "the server refuses the account: check access key, secret key and rights",
        )
    return cls(f"{reason} ({_NAMES.get(code, 'unknown code')})", code=code, remark=remark, **facts)


def limits_cold_data(code: int, remark: str | None) -> bool:
    """Return whether a broker refuses a group without members the next messages, because they are old.

    A pull is refused, and not executed, until the broker counts again: every five seconds.
    """
    return code == ResponseCode.SYSTEM_ERROR and _COLD_DATA.search(remark or "") is not None


def _of_another_type(taken: str, sent: str) -> tuple[type[BrokerError], str]:
    """Return what a proxy means that does not take this type of messages."""
    if taken == "UNSPECIFIED":
        return ServiceNotAvailableError, "the proxy does not know the topic"
    return MessageIllegalError, (
        f"the topic takes {taken} messages and this one is {sent}: "
        f"set the topic's attribute message.type to MIXED, "
        f"where brokers have enableMixedMessageType, or {sent}"
    )


def _refuses_account(code: int, remark: str) -> bool:
    match code:
        case ResponseCode.SYSTEM_ERROR:
            return "AclException" in remark
        case ResponseCode.NO_PERMISSION:
            return _IDENTITY.search(remark) is not None
        case _:
            return False
