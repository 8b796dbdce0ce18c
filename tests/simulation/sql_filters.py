"""SQL filters of simulated brokers: conditions on tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pyspark_rocketmq.remoting.body.shape import read
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.testing.handlers.requests import Operation, Replica
from pyspark_rocketmq.testing.log import PullLimits
from pyspark_rocketmq.testing.wire import Reply

__all__ = ["sql_requests"]

_CONDITION: Final = re.compile(r"TAGS IN \('(\w+(?:', '\w+)*)'\)")


def sql_requests(operations: Mapping[int, Operation]) -> dict[int, Operation]:
    """Return the operations of brokers with ``enablePropertyFilter=true``.

    Facts (PullMessageProcessor, ClientManageProcessor; RocketMQ 5.4): an expression of another type than TAG
    is part of each pull. Messages that it leaves out are passed as those of other tags are.
    """
    pull, check = operations[RequestCode.PULL_MESSAGE], operations[RequestCode.CHECK_CLIENT_CONFIG]

    def pull_by_sql(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
        fields = frame.command.fields
        if fields.get("expressionType") == "SQL92" and (tags := _tags(fields["subscription"])):
            changed = {**fields, "expressionType": "TAG", "subscription": " || ".join(tags)}
            frame = replace(frame, command=replace(frame.command, fields=changed))
        return pull(replica, frame, limits)

    def check_sql(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
        subscription = read(frame.body, "client check")["subscriptionData"]
        return Reply() if _tags(subscription["subString"].string("")) else check(replica, frame, limits)

    return {RequestCode.PULL_MESSAGE: pull_by_sql, RequestCode.CHECK_CLIENT_CONFIG: check_sql}


def _tags(expression: str) -> list[str]:
    """Return the tags that a condition names; nothing if it is another one."""
    found = _CONDITION.fullmatch(expression)
    return found[1].split("', '") if found else []
