"""How the session that ``start()`` makes is sized, and what is said of one that is not."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.streams.run.session import machine_settings, partitions_warning

PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_a_session_has_a_partition_a_core(cores):
    settings = machine_settings(cores, ())
    assert settings[PARTITIONS] == str(cores)
    assert int(settings["spark.sql.execution.arrow.maxRecordsPerBatch"]) <= 10_000


def test_what_the_user_has_configured_stays():
    settings = machine_settings(2, {PARTITIONS, "spark.master"})
    assert PARTITIONS not in settings
    assert settings


def test_far_too_many_partitions_are_said_with_what_to_do():
    text = partitions_warning("n.p", 200, 2)
    assert text is not None
    assert "n.p keeps state in 200 partitions on 2 cores" in text
    assert f"Set {PARTITIONS} to about 2 before the job's first start" in text


@pytest.mark.parametrize(("partitions", "cores"), [(2, 2), (32, 2), (200, 16), (1, 64)])
def test_reasonable_numbers_of_partitions_are_not_mentioned(partitions, cores):
    assert partitions_warning("n.p", partitions, cores) is None
