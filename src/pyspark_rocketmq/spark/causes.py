"""The line of a failure's text that says what happened."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["find_cause", "find_own_error"]

_OURS: Final = re.compile(r"pyspark_rocketmq\.errors\.\w+: .+")
_PYTHON: Final = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit)(?:: (.+))?")
_AROUND: Final = re.compile(r"\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ")
_NOISE: Final = re.compile(r" ?SQLSTATE: \w+|; line \d+ pos \d+;?| ?\(line \d+, pos \d+\)")


def find_own_error(text: str) -> str | None:
    """Return the last line of an error of this package, with its class, or None if there is none."""
    found = _OURS.findall(text)
    return str(found[-1]) if found else None


def find_cause(text: str) -> str:
    """Return the line of an error's text that names the cause: our error, else Python's, else Spark's.

    Parameters
    ----------
    text : str
        The text of an exception of Spark, which may contain tracebacks of Python workers and of Java.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    ours = find_own_error(text)
    raised = [line for line in lines if _PYTHON.fullmatch(line)]
    if ours is not None:
        line = ours.partition(": ")[2]
    elif raised and "Traceback (most recent call last)" in text:
        line = raised[-1]
    else:
        line = _AROUND.sub("", lines[0]) if lines else ""
    return _NOISE.sub("", line).strip()
