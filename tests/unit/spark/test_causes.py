"""The cause in texts as Spark gives them."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.spark.causes import find_cause

OURS = "pyspark_rocketmq.errors.OptionError: unknown option topik [option=topik]"
FRAMES = 'Traceback (most recent call last):\n  File "/a/b.py", line 3, in read\n    raise Error: no\n'
FAILED = "[STREAM_FAILED] Query [id = 1-2, runId = 3] terminated with exception: "


WORKER = "An exception was thrown from the Python worker:"
TOLD = "unknown option topik [option=topik]"
PLAN = "=== Streaming Query ===\nIdentifier: [id = 1-2]"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (OURS, TOLD),
        (
            f"[PYTHON_DATA_SOURCE_ERROR] Failed to plan a read: {OURS}\n SQLSTATE: 38000",
            TOLD,
        ),
        (f"{WORKER}\n{FRAMES}{OURS}\n", TOLD),
        (f"{FAILED}[PYTHON_EXCEPTION] {WORKER} {OURS}\n SQLSTATE: 38000\n{PLAN}", TOLD),
        (f"{FAILED}[ZERO] Division by zero. SQLSTATE: 22012\n{PLAN}", "[ZERO] Division by zero."),
        (f"{WORKER}\n{FRAMES}ValueError: no number: 'x'\n", "ValueError: no number: 'x'"),
        (f"{FRAMES}KeyError: 'a'\n\nDuring handling:\n\n{FRAMES}my.own.BadError\n at x", "my.own.BadError"),
        ("[UNRESOLVED] A column `a`. SQLSTATE: 42703; line 3 pos 7;\n'Project", "[UNRESOLVED] A column `a`."),
        ("java.lang.Error: is not Python's\n\tat x", "java.lang.Error: is not Python's"),
        ("", ""),
    ],
)
def test_the_cause_is_found(text: str, cause: str) -> None:
    assert find_cause(text) == cause
