"""Which topic the tasks of a write send to."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.spark.write.committed.staging_topic import batch_name, check_target, options_of_tasks
from pyspark_rocketmq.spark.write.transaction_log import TransactionName

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


def test_batches_of_topics_that_share_a_staging_topic_have_different_names() -> None:
    committed, staged = (
        parse_options(SinkOptions, TRANSACTIONAL | {"transactionVisibility": visibility}, environ={})
        for visibility in ("committed", "staged")
    )
    assert batch_name(committed, "q", 7) == TransactionName("q", 7)
    assert batch_name(staged, "q", 7) == TransactionName("t/q", 7)


def test_a_row_goes_to_the_queue_with_the_broker_and_number_of_its_staging_queue() -> None:
    queues = tuple(MessageQueue("t", broker, number) for broker in "ab" for number in range(2))
    assert check_target(MessageQueue("t-staging", "b", 1), "t", queues) == MessageQueue("t", "b", 1)
    for missing in (MessageQueue("t-staging", "b", 2), MessageQueue("t-staging", "c", 0)):
        with pytest.raises(OptionError, match="has no such queue in t that may be written") as refused:
            check_target(missing, "t", queues)
        assert (refused.value.facts["option"], refused.value.facts["topic"]) == ("stagingTopic", "t")
