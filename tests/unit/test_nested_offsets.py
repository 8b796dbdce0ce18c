"""Values of queues as nested JSON objects."""

from __future__ import annotations

import json

import pytest

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.model.nested_offsets import flatten, nest

VALUES = {
    MessageQueue("orders", "broker-b", 0): 7,
    MessageQueue("orders", "broker-a", 10): 5,
    MessageQueue("clicks", "broker-a", 2): 0,
    MessageQueue("orders", "broker-a", 2): 9,
}


def test_values_are_nested_in_the_order_of_the_queues():
    assert json.dumps(nest(VALUES)) == (
        '{"clicks": {"broker-a": {"2": 0}}, "orders": {"broker-a": {"2": 9, "10": 5}, "broker-b": {"0": 7}}}'
    )


def test_flatten_reads_what_nest_wrote():
    assert flatten(json.loads(json.dumps(nest(VALUES)))) == VALUES
    assert flatten(nest({})) == {}


@pytest.mark.parametrize(
    "nested", [{"orders": 3}, {"orders": {"broker-a": [1]}}, {"orders": {"a": {"x": 1}}}]
)
def test_another_form_is_an_error(nested):
    with pytest.raises((AttributeError, ValueError)):
        flatten(nested)
