"""Test support for users' jobs: a mock RocketMQ with fault injection, fixtures of a real one, and helpers.

Names resolve on first use, so that the pytest plugin costs nothing in suites that do not use it. See
``docs/testing.md``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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
    "Short",
    "Silence",
    "Stranger",
    "drain",
    "message_frame",
    "peek",
]

_ELSEWHERE: Final = {
    "MemorySink": "doubles",
    "MockBroker": "mock",
    "MockCluster": "mock",
    "PullLimits": "log",
    "drain": "doubles",
    "message_frame": "doubles",
    "peek": "newest_messages",
}


def __getattr__(name: str) -> Any:
    """Resolve a public name on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'faults')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
