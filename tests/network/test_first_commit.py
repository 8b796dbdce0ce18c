"""A broker that gets a group's first commits side by side keeps some of them only: one goes ahead."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.errors import BrokerError
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import MockCluster

COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


def test_one_commit_a_broker_and_topic_goes_ahead_of_the_others():
    with (
        MockCluster({"orders": 4, "payments": 4}, brokers=("broker-a", "broker-b")) as mq,
        Client(mq.name_server) as client,
    ):
        offsets = {
            queue: queue.queue_id for topic in ("orders", "payments") for queue in client.read_queues(topic)
        }
        mq.fail(COMMIT, code=ResponseCode.NO_PERMISSION, times=None)
        with pytest.raises(BrokerError):
            client.commit_offsets("billing", offsets)
        assert mq.asked[COMMIT] == 4  # of 16: two brokers, two topics
        mq.heal()
        client.commit_offsets("billing", offsets)
        assert mq.asked[COMMIT] == 4 + 16
        assert client.committed_offsets("billing", offsets) == offsets

        mq.fail(COMMIT, code=ResponseCode.NO_PERMISSION, times=None)
        with pytest.raises(BrokerError):
            client.commit_offsets("billing", offsets)
        assert mq.asked[COMMIT] == 4 + 16 + 16  # the tables are there now
