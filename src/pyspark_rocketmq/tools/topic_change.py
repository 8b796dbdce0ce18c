"""The topics that a command may create or alter."""

from __future__ import annotations

from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.errors import OptionError, TopicNotFoundError
from pyspark_rocketmq.inventory import TopicConfig

__all__ = ["alterable_configs", "existing_configs"]


def existing_configs(
    admin: Admin, topic: str, *, cluster: str | None = None, broker: str | None = None
) -> dict[str, TopicConfig]:
    """Return a topic's configuration at each broker that has it; empty if it does not exist.

    Parameters
    ----------
    cluster, broker : str, optional
        Only at the brokers of this cluster, or at this one.

    Raises
    ------
    OptionError
        There is no such cluster.
    """
    try:
        admin.topic_route(topic)
    except TopicNotFoundError:
        return {}
    configs = admin.topic_configs(topic)
    if broker is not None:
        configs = {name: config for name, config in configs.items() if name == broker}
    if cluster is None:
        return configs
    members = admin.cluster_info().clusters.get(cluster)
    if members is None:
        raise OptionError("no such cluster at this name server", cluster=cluster)
    return {name: config for name, config in configs.items() if name in members}


def alterable_configs(admin: Admin, topic: str, *, cluster: str | None = None) -> dict[str, TopicConfig]:
    """Return the configurations of a topic that can be altered.

    Raises
    ------
    TopicNotFoundError
    OptionError
        There is no such cluster, it does not have the topic, or the topic is a static one.
    """
    if admin.topic_route(topic).static_queues:
        raise OptionError("a static topic is remapped by mqadmin, not altered", topic=topic)
    configs = existing_configs(admin, topic, cluster=cluster)
    if not configs:
        raise OptionError("the cluster does not have the topic", topic=topic, cluster=cluster)
    return configs
