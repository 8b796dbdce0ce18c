"""Executes one request at a mock server: a reply in any case."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_rocketmq.errors import RemoteProtocolError
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.testing.wire import Reply

__all__ = ["Refused", "execute"]


class Refused(Exception):  # noqa: N818 - an answer on its way, not an error of ours
    """Ends a request with a response code."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


def execute(frame: Frame, operation: Callable[[Frame], Reply] | None) -> Reply:
    """Return an operation's reply, or why there is none. None: the server does not know the request."""
    if operation is None:
        return Reply(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            remark=f" request type {frame.command.code} not supported",
        )
    try:
        return operation(frame)
    except Refused as refusal:
        return Reply(refusal.code, remark=refusal.remark)
    except RemoteProtocolError as error:  # a request without a required field
        return Reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
