"""The staging topic of a write, in which rows wait until they are committed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.errors import OptionError, TopicNotFoundError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.model.names import staging_topic_of
from pyspark_rocketmq.options import SinkOptions
from pyspark_rocketmq.options.choices import Visibility
from pyspark_rocketmq.spark.write.sink_topics import SinkTopics
from pyspark_rocketmq.spark.write.transaction_log import TransactionName

__all__ = [
    "batch_name",
    "batch_of_job",
    "check_target",
    "options_of_tasks",
    "require_same_queues",
]


def options_of_tasks(options: SinkOptions) -> SinkOptions:
    """Return the options with which tasks send rows: of a write to the staging topic, if there is one."""
    if not options.is_staged:
        return options
    return replace(
        options,
        topic=staging_topic_of(str(options.topic), options.staging_topic),
        staging_topic=None,
        transaction_visibility=Visibility.COMMITTED,
    )


def batch_name(options: SinkOptions, owner: str, number: int) -> TransactionName:
    """Return the name of a batch of a query or job: topics may share a staging topic."""
    return TransactionName(f"{options.topic}/{owner}" if options.is_staged else owner, number)


def batch_of_job(options: SinkOptions, job: str) -> TransactionName:
    """Return the name of a batch write: that of a job, or of its batch ``jobBatch``.

    A job's id may be the same for several topics: the records of a commit topic name the topic, too.
    """
    name = batch_name(options, job, options.job_batch or 0)
    if options.transactions is None or options.topic is None:
        return name
    return replace(name, owner=f"{options.topic}/{job}")


def require_same_queues(client: Client, options: SinkOptions) -> None:
    """Check, before rows are staged, that each has its queue in the topic; create the topics on request.

    Raises
    ------
    OptionError
        The topic lacks a queue of the staging topic, or is static.
    TopicNotFoundError, PermissionDeniedError, BrokerNotFoundError, NameServerError
        As `SinkTopics.queues`.
    """
    topic = str(options.topic)
    queues = SinkTopics(client, options, patient=True).queues(topic)
    if queues is None:
        raise TopicNotFoundError("the topic of a staged write does not exist: create it", topic=topic)
    if queues[0].logical:
        raise OptionError(
            "a static topic cannot have transactions, because its queues move to other brokers: "
            "write with another deliveryGuarantee",
            option="deliveryGuarantee",
            topic=topic,
        )
    sizes = Counter(queue.broker_name for queue in queues)
    staged = replace(options_of_tasks(options), topic_queues=max(sizes.values()))
    for queue in SinkTopics(client, staged, patient=True).queues(str(staged.topic)) or ():
        if queue.broker_name in sizes:
            check_target(queue, topic, queues)


def check_target(staged: MessageQueue, topic: str, queues: tuple[MessageQueue, ...]) -> MessageQueue:
    """Return the queue of a topic for the rows of a staging queue: the one with its broker and number.

    Raises
    ------
    OptionError
        It is not among the queues.
    """
    target = MessageQueue(topic, staged.broker_name, staged.queue_id)
    if target not in queues:
        raise OptionError(
            f"{staged} has no such queue in {topic} that may be written: create the staging topic with the "
            "queues of the topic. If it has rows, give the topic as many queues as it has, then start again: "
            "they wait",
            option="stagingTopic",
            topic=topic,
        )
    return target
