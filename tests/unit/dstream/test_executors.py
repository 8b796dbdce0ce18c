"""How executors are named as locations of tasks."""

from __future__ import annotations

from types import SimpleNamespace as Fake
from typing import Any

import pytest

from pyspark_rocketmq.dstream import jvm


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        # Of an executor whose block manager has not registered yet, Spark knows the host only.
        (
            [("10.0.0.1:4040", "driver"), ("10.0.0.1", "1"), ("10.0.0.1:39", "0")],
            ["10.0.0.1_0", "10.0.0.1_1"],
        ),
        ([("b:39", "0"), ("a", "1"), ("a:40", "2")], ["a_1", "a_2", "b_0"]),
        ([("[::1]:39", "1"), ("[::1]", "0")], ["[::1]_0", "[::1]_1"]),
        ([("localhost:4040", "driver")], []),
        ([("localhost", "driver")], []),
    ],
)
def test_an_executor_is_named_by_its_host_also_before_its_port_is_known(
    monkeypatch: pytest.MonkeyPatch, known: list[tuple[str, str]], expected: list[str]
) -> None:
    def summary(host_port: str, number: str) -> Any:
        return Fake(hostPort=lambda: host_port, id=lambda: number)

    store = Fake(executorList=lambda active: [summary(*each) for each in known] if active else [])
    sc: Any = Fake(_jsc=Fake(sc=lambda: Fake(statusStore=lambda: store)))
    monkeypatch.setattr(jvm, "elements_of_seq", lambda _, seq: seq)
    assert jvm.executors(sc) == [f"executor_{each}" for each in expected]
