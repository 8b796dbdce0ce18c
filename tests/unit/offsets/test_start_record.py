from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_rocketmq.model import (
    Ago,
    AtOffsets,
    AtTimestamp,
    Earliest,
    GroupOffsets,
    LastMessages,
    Latest,
    MessageQueue,
    StartPolicy,
)
from pyspark_rocketmq.offsets.start_record import decode_start, encode_start

Q = MessageQueue("orders", "broker-a", 0)


@pytest.mark.parametrize(
    ("policy", "form"),
    [
        (Earliest(), "earliest"),
        (Latest(), "latest"),
        (AtTimestamp(1_767_225_600_000), {"timestamp": 1_767_225_600_000}),
        (Ago(60_000), {"ago": 60_000}),
        (LastMessages(10), {"last": 10}),
        (GroupOffsets(None), {"group": None}),
        (GroupOffsets(Earliest()), {"group": "earliest"}),
        (
            AtOffsets({Q: 7}, GroupOffsets(Latest()), {"payments": Earliest()}),
            {
                "offsets": {"orders": {"broker-a": {"0": 7}}},
                "topics": {"payments": "earliest"},
                "default": {"group": "latest"},
            },
        ),
        (
            AtOffsets({Q: Ago(5)}),
            {"offsets": {"orders": {"broker-a": {"0": {"ago": 5}}}}, "topics": {}, "default": None},
        ),
    ],
)
def test_a_start_comes_back_from_its_json(policy: StartPolicy, form: Any):
    assert encode_start(policy) == form
    assert decode_start(json.loads(json.dumps(form))) == policy


@pytest.mark.parametrize("form", [None, 5, True, "newest", [], {}, {"timestamp": "1"}, {"offsets": {}}])
def test_what_is_no_start_is_refused(form: Any):
    with pytest.raises((ValueError, TypeError, KeyError)):
        decode_start(form)
