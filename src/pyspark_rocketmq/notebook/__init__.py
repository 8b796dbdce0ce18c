"""RocketMQ in a notebook: tables of topics, lag and offsets, a live table of a stream, plots.

Needs the extra ``notebook``. Everything also works in a plain terminal.
"""

from __future__ import annotations

import pyspark_rocketmq.spark  # noqa: F401 - one sentence, if PySpark is missing or too old

# isort: split
from pyspark_rocketmq.notebook.live import live
from pyspark_rocketmq.notebook.plots import plot_lag, plot_rates
from pyspark_rocketmq.notebook.tables import Shown, lag, offsets, topics

__all__ = ["Shown", "lag", "live", "offsets", "plot_lag", "plot_rates", "topics"]
