"""Jobs in little memory; the first test is the twin of ``python -m benchmarks.footprint``."""

from __future__ import annotations

import os

import pytest
from benchmarks.footprint import ALLOWED_MB, run
from tests.support.lean_jvm import users_pythonpath

from pyspark_rocketmq.streams import StreamBuilder, Time, TumblingWindow, WindowStrategy
from pyspark_rocketmq.streams.run.session import get_plan_session

KEYS, SECONDS = 20_000, 12


@pytest.mark.needs("programs")
@pytest.mark.timeout(400)
def test_a_job_with_many_keys_takes_a_gigabyte(mq, topic, tmp_path, monkeypatch):
    """It says so from its start to its second closed window; how it goes on, the ten minutes show."""
    monkeypatch.setenv("PYTHONPATH", users_pythonpath(os.environ))
    found = run(
        mq.name_server,
        tmp_path,
        topic=topic(queues=2),
        seconds=SECONDS,
        keys=KEYS,
        rate=2_000,
        to_the_end=False,
    )
    assert found.peak_mb < ALLOWED_MB[False], found.samples
    assert "already running" not in (tmp_path / "job.log").read_text(), (
        "a session of the job's own is as asked"
    )
    assert found.rows >= KEYS / 2
    assert 0 < found.counted <= found.sent


@pytest.mark.parametrize(("hard", "heap"), [(False, "512m"), (True, "256m")])
def test_a_session_that_is_there_already_keeps_its_size(spark, hard, heap):
    seen = []
    pipeline = (
        StreamBuilder.dataStream("tests", "small", spark)
        .fromArray(["a"])
        .with_(WindowStrategy.lowMemory(hardLimit=hard))
        .to(lambda df, _: seen.append((df.count(), spark.conf.get("spark.sql.shuffle.partitions"))))
    )
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    try:
        with pytest.warns(UserWarning, match=r"lowMemory\(.*already running") as told:
            pipeline.start()
        assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    text = str(told[0].message)
    assert "spark.master is local[2], not local[1]" in text
    assert f"m, not {heap}" in text
    assert "-XX:+UseSerialGC" in text
    assert "MALLOC_ARENA_MAX=2" in text
    assert ("spark.python.use.daemon is unset, not false" in text) == hard
    assert seen == [(1, str(spark.sparkContext.defaultParallelism))]
    assert spark.sparkContext.getConf().get("spark.python.worker.reuse", "true") == "true"


def test_far_too_many_partitions_of_a_session_that_is_there_are_said(spark):
    source = StreamBuilder.dataStream("tests", "wide", spark).fromArray(['{"k": 1}'])
    windows = source.window(TumblingWindow.of(Time.seconds(10))).groupBy("k").count("n").toDataStream()
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        spark.conf.set("spark.sql.shuffle.partitions", "200")
        with pytest.warns(UserWarning, match=r"tests\.wide keeps state in 200 partitions on 2 cores"):
            assert get_plan_session(spark, windows.toPrint().plan()) is spark
        assert spark.conf.get("spark.sql.shuffle.partitions") == "200", "a user's session is left as it is"
        stateless = StreamBuilder.dataStream("tests", "flat", spark).fromArray(["x"]).toPrint()
        assert get_plan_session(spark, stateless.plan()) is spark
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        assert get_plan_session(spark, windows.plan()) is spark
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
