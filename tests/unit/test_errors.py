"""What errors have in common: facts, and copies with more of them."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import BrokerError, ConnectError, FlowControlError, RocketMQError, SqlError


@pytest.mark.parametrize(
    "error",
    [
        ConnectError("cannot connect", addr="h:1"),
        FlowControlError("busy", code=2, remark="r", addr="h:1"),
        SqlError("wrong", line=1, column=2, addr="h:1"),
    ],
)
def test_an_error_with_more_facts_leaves_that_of_others_as_it_is(error: RocketMQError) -> None:
    """Tasks that wait for one connection get one error, of which each knows another topic."""
    error.add_note("a note")
    error.__cause__ = OSError("refused")
    told = [error.with_facts(topic=topic, addr="other", queue=None) for topic in ("a", "b")]
    told[0].add_note("another")
    told[0].facts["attempts"] = 2
    assert [type(each) for each in told] == [type(error)] * 2
    assert [(each.facts["topic"], each.facts["addr"]) for each in told] == [("a", "h:1"), ("b", "h:1")]
    assert "queue" not in told[0].facts
    assert not {"topic", "attempts"} & {*error.facts, *({*told[1].facts} - {"topic"})}
    assert error.__notes__ == told[1].__notes__ == ["a note"]
    assert all(each.__cause__ is error.__cause__ and each.__suppress_context__ for each in told)
    assert str(told[1]).startswith(str(error).removesuffix("]"))


def test_an_error_with_more_facts_keeps_its_fields() -> None:
    told = BrokerError("no", code=7, remark="r").with_facts(topic="t")
    assert (told.code, told.remark, told.args) == (7, "r", ("no",))
    assert str(told) == "no [code=7, remark=r, topic=t]"
