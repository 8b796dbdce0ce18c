"""The Python side of the protocol between the harness and what it measures.

A worker prints ``@`` and a JSON object when it is ready; then it does a round for every line that it
reads and prints what it did in the same form. Everything else on its standard output is noise.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from typing import NamedTuple


class Done(NamedTuple):
    """What one round read or wrote; ``extra`` goes into the results as it is."""

    messages: int
    bytes: int
    extra: dict[str, object] = {}  # noqa: RUF012 - never written to


def serve(work: Callable[[], Done]) -> None:
    """Do a round for each line of standard input, until it ends."""
    say({"ready": True})
    for _ in sys.stdin:
        gc.collect()
        done = work()
        say({"messages": done.messages, "bytes": done.bytes, **done.extra})


def say(answer: dict[str, object]) -> None:
    """Print one answer."""
    print("@" + json.dumps(answer), flush=True)
