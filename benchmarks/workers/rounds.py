"""The Python side of the protocol between the harness and the measured programs.

A worker prints ``@`` and a JSON object when it is ready. It then runs a round for every line that it reads,
and prints the result in the same format. Everything else on its standard output is ignored.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from typing import NamedTuple


class Done(NamedTuple):
    """The result of one round. ``extra`` is added to the results unchanged."""

    messages: int
    bytes: int
    extra: dict[str, object] = {}  # noqa: RUF012 - never written to


def serve(work: Callable[[], Done]) -> None:
    """Run a round for each line of standard input, until it ends."""
    say({"ready": True})
    for _ in sys.stdin:
        gc.collect()
        done = work()
        say({"messages": done.messages, "bytes": done.bytes, **done.extra})


def say(answer: dict[str, object]) -> None:
    """Print one response."""
    print("@" + json.dumps(answer), flush=True)
