"""A real RocketMQ that needs little of the machine."""

from __future__ import annotations

from typing import Final

from tests.support.lean_jvm import LEAN

from pyspark_rocketmq.devcluster import DevCluster, JvmOptions
from pyspark_rocketmq.devcluster.jars import DEFAULT_VERSION

LIGHT_JVM: Final = JvmOptions(heap="1g", jvm_args=LEAN)
_LIGHT_NAME_SERVER: Final = JvmOptions(heap="256m", jvm_args=LEAN)
_RARE_FLUSHES: Final = {"timerFlushIntervalMs": "600000"}
"""Half of what an idle broker does is to compare 37 MiB, see `timerFlushIntervalMs` in `devcluster`."""


def light_cluster(*, version: str = DEFAULT_VERSION, **settings: str) -> DevCluster:
    """Return a RocketMQ, not started, with one broker of these settings."""
    return DevCluster(
        version=version,
        broker_config=_RARE_FLUSHES | settings,
        broker_options=LIGHT_JVM,
        name_server_options=_LIGHT_NAME_SERVER,
    )
