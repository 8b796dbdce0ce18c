"""Test support for users' jobs: a mock RocketMQ with fault injection, fixtures of a real one, and helpers.

Names resolve on first use, so that the pytest plugin costs nothing in suites that do not use it. See
``docs/testing.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_rocketmq._lazy import lazy_names

if TYPE_CHECKING:
    from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
    from pyspark_rocketmq.testing.doubles import MemorySink, drain, message_frame
    from pyspark_rocketmq.testing.faults import (
        Announce,
        Cut,
        Damage,
        Delay,
        Drip,
        Fault,
        HangUp,
        Injection,
        Refuse,
        Reorder,
        Repeat,
        Short,
        Silence,
        Stranger,
    )
    from pyspark_rocketmq.testing.log import PullLimits
    from pyspark_rocketmq.testing.mock import MockBroker, MockCluster
    from pyspark_rocketmq.testing.newest_messages import peek

__all__ = [
    "Announce",
    "Cut",
    "Damage",
    "Delay",
    "Drip",
    "Fault",
    "HangUp",
    "Injection",
    "MemorySink",
    "MockBroker",
    "MockCluster",
    "PullLimits",
    "Refuse",
    "Reorder",
    "Repeat",
    "RequestCode",
    "ResponseCode",
    "Short",
    "Silence",
    "Stranger",
    "drain",
    "message_frame",
    "peek",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".doubles": ("MemorySink", "drain", "message_frame"),
        ".faults": (
            *("Announce", "Cut", "Damage", "Delay", "Drip", "Fault", "HangUp", "Injection"),
            *("Refuse", "Reorder", "Repeat", "Short", "Silence", "Stranger"),
        ),
        ".log": ("PullLimits",),
        ".mock": ("MockBroker", "MockCluster"),
        ".newest_messages": ("peek",),
        "pyspark_rocketmq.remoting.codes": ("RequestCode", "ResponseCode"),
    },
)
