"""Spark's settings of a streaming query, which it takes when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark_rocketmq.spark.session_settings import ORDER_SETTINGS, WATERMARK_SETTINGS

__all__ = ["query_settings"]

_STATE_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}


def query_settings(*, keeps_state: bool) -> Mapping[str, str]:
    """Return what a query needs when it starts.

    Parameters
    ----------
    keeps_state : bool
        Whether it has steps whose state is kept in Python.
    """
    return {**WATERMARK_SETTINGS, **ORDER_SETTINGS, **(_STATE_SETTINGS if keeps_state else {})}
