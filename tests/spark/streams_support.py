"""Rows and helpers of the tests of pipelines."""

from __future__ import annotations

from datetime import UTC, datetime

FLOWS = [
    f'{{"InFlow":"{n}","ProjectName":"ProjectName-{(n - 1) % 3}","LogStore":"LogStore-{(n - 1) % 3}",'
    f'"OutFlow":"{n - 1}"}}'
    for n in range(1, 11)
]
"""The ten records of RocketMQ Streams' window example."""

CLICKS = [
    '{"userId":"1","eventTime":"1631700000000","method":"GET","url":"page-1"}',
    '{"userId":"2","eventTime":"1631700030000","method":"POST","url":"page-2"}',
    '{"userId":"3","eventTime":"1631700040000","method":"GET","url":"page-3"}',
    '{"userId":"1","eventTime":"1631700050000","method":"DELETE","url":"page-2"}',
    '{"userId":"1","eventTime":"1631700060000","method":"DELETE","url":"page-2"}',
    '{"userId":"2","eventTime":"1631700070000","method":"POST","url":"page-3"}',
    '{"userId":"3","eventTime":"1631700080000","method":"GET","url":"page-2"}',
    '{"userId":"1","eventTime":"1631700090000","method":"GET","url":"page-3"}',
    '{"userId":"2","eventTime":"1631700100000","method":"PUT","url":"page-3"}',
    '{"userId":"4","eventTime":"1631700120000","method":"POST","url":"page-1"}',
]
"""The ten records of its page click example."""

EPOCH = datetime(2030, 1, 1, tzinfo=UTC).timestamp()


def at(second: float, **record: object) -> tuple[float, dict[str, object]]:
    """Return a record that was stored so many seconds after the start of a year."""
    return EPOCH + second, record


def table(rows: list[dict[str, object]], *names: str) -> list[tuple[object, ...]]:
    """Return some fields of rows, sorted."""
    return sorted(
        (tuple(row.get(name) for name in names) for row in rows), key=lambda row: [str(v) for v in row]
    )
