"""``python -m pyspark_rocketmq``: the command line, where its script is not on the path."""

from __future__ import annotations

from pyspark_rocketmq.cli import main

main()
