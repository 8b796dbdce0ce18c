"""The long format name of rocketmq-spark: ``spark.readStream.format("org.apache.rocketmq.spark")``.

Spark registers one ``DefaultSource`` a top-level ``pyspark_*`` module; this one carries the second
name of the source in ``pyspark_rocketmq``. It has no other content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_rocketmq.spark.source import RocketMQCompatDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    """Resolve ``DefaultSource`` on first use (PEP 562)."""
    if name == "DefaultSource":
        from pyspark_rocketmq._lookup import data_source  # noqa: PLC0415

        return data_source("RocketMQCompatDataSource", "org.apache.rocketmq.spark")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
