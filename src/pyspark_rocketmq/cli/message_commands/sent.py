"""What a command that sends had sent when it ended early."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark_rocketmq.errors import RocketMQError

__all__ = ["Sent", "tell_sent"]


@dataclass(slots=True)
class Sent:
    """The number of messages that brokers have stored."""

    messages: int = 0


@contextlib.contextmanager
def tell_sent() -> Iterator[Sent]:
    """Count what is sent. An error has the number, and Ctrl-C prints it: a second run sends it again."""
    sent = Sent()
    try:
        yield sent
    except RocketMQError as error:
        raise error.with_facts(acknowledged=sent.messages) from None
    except KeyboardInterrupt:
        said = (
            f"interrupted: {sent.messages:,} messages or a few more were sent; a second run sends all again"
        )
        print(said, file=sys.stderr)
        raise
