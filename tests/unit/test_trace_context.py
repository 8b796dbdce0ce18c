"""W3C trace contexts, and what tracing does in a program without OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pyspark_rocketmq.client.trace.spans import current_traceparent, is_active, links_to, span
from pyspark_rocketmq.model.trace_context import TraceContext

TEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_context_is_read_and_written() -> None:
    context = TraceContext.parse(TEXT)
    assert context == TraceContext(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, 1)
    assert str(context) == TEXT


def test_a_later_version_may_have_more_fields() -> None:
    assert str(TraceContext.parse("01" + TEXT[2:] + "-more")) == TEXT


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "ff" + TEXT[2:],
        TEXT.upper(),
        TEXT + "-more",
        TEXT[:-3],
        TEXT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        TEXT.replace("00f067aa0ba902b7", "0" * 16),
        "x" + TEXT,
        TEXT + "\n",
    ],
)
def test_an_invalid_context_is_none(text: str | None) -> None:
    assert TraceContext.parse(text) is None


def test_without_opentelemetry_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)
    assert not is_active()
    assert current_traceparent() is None
    assert links_to([TEXT]) == []
    with span("send", "orders") as current:
        assert current is None


def test_the_client_imports_nothing_of_opentelemetry() -> None:
    program = (
        "import sys, pyspark_rocketmq.client.send.producer, pyspark_rocketmq.client.groups.push_consumer\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
