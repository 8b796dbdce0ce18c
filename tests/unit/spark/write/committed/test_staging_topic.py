"""Which topic the tasks of a write send to."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.spark.write.committed.staging_topic import options_of_tasks

TRANSACTIONAL = {
    "nameServer": "127.0.0.1:9876",
    "topic": "t",
    "deliveryGuarantee": "transactional",
    "ordered": "true",
}


@pytest.mark.parametrize(
    ("given", "topic"),
    [
        ({"transactionVisibility": "staged"}, "t-staging"),
        ({"transactionVisibility": "staged", "stagingTopic": "waiting", "commitTopic": "c"}, "waiting"),
        ({"transactionVisibility": "committed"}, "t"),
        ({"transactionLog": "/log"}, "t"),
    ],
)
def test_a_staged_write_sends_to_its_staging_topic(given: dict[str, str], topic: str) -> None:
    options = parse_options(SinkOptions, TRANSACTIONAL | given, environ={})
    sent = options_of_tasks(options)
    assert (sent.topic, sent.ordered, sent.is_staged) == (topic, True, False)
    assert sent.commits_ranges == options.commits_ranges
    assert sent.commit_topic == given.get("commitTopic")
