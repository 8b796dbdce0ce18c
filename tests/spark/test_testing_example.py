"""The example of how to test runs as it stands, in this suite's Spark session."""

from __future__ import annotations

from examples.testing_example import *  # noqa: F403 - its tests and fixtures are collected here

pytest_plugins = ["pyspark_rocketmq.testing.plugin"]
