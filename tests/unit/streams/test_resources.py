"""How small a job is to be, as settings; the processes are measured in tests/spark."""

from __future__ import annotations

from pyspark_rocketmq.streams import StreamBuilder, WindowStrategy
from pyspark_rocketmq.streams.plan.resources import HARD_LIMIT, LOW_MEMORY


def plan(*strategies):
    return StreamBuilder.dataStream("n", "p").fromArray(["x"]).with_(*strategies).toPrint().plan()


def test_a_plan_says_how_small_its_job_is_to_be():
    assert plan().footprint is None
    assert plan(WindowStrategy.lowMemory()).footprint is LOW_MEMORY
    assert plan(WindowStrategy.low_memory(hardLimit=True)).footprint is HARD_LIMIT


def test_what_a_session_is_started_with():
    default, hard = LOW_MEMORY.start_settings(), HARD_LIMIT.start_settings()
    assert default["spark.master"] == hard["spark.master"] == "local[1]"
    assert (default["spark.driver.memory"], hard["spark.driver.memory"]) == ("512m", "256m")
    assert "-XX:+UseSerialGC" in default["spark.driver.extraJavaOptions"].split()
    assert "-Xmx" not in default["spark.driver.extraJavaOptions"], "Spark wants that as spark.driver.memory"
    assert hard["spark.python.use.daemon"] == "false"
    assert "spark.python.use.daemon" not in default
