"""The dev cluster runs real servers, and leaves none behind."""

from __future__ import annotations

from tests.support.topics import TopicFactory

from pyspark_rocketmq.devcluster import DevCluster


def test_mqadmin_sees_the_broker(mq: DevCluster) -> None:
    listing = mq.mqadmin("clusterList")
    assert "broker-a" in listing
    assert mq.broker("broker-a").address in listing


def test_topic_fixture_creates_a_topic(mq: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=3)
    assert '"readQueueNums":3' in mq.mqadmin("topicRoute", "-t", name).replace(" ", "")


def test_4_9_runs_too(mq49: DevCluster, topic: TopicFactory) -> None:
    assert "V4_9" in mq49.mqadmin("clusterList")
    topic(queues=1, cluster=mq49)
