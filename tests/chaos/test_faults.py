"""Everything that can go wrong, while messages are written and read: none lost, none twice, order kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.cluster_chaos import chaos_cluster, disturb_cluster
from tests.support.mock_chaos import disturb
from tests.support.wait import BUSY
from tests.support.workload import Figures

FULL = int(os.environ.get("CHAOS_KILLS", "1")) >= 20


def check(figures: Figures, *, longest_stall_s: float) -> None:
    print(figures)
    assert (figures.lost, figures.repeated_rows, figures.disordered, figures.refused) == (0, 0, 0, 0)
    assert figures.read >= figures.sent > 0
    assert figures.longest_stall_s < longest_stall_s * BUSY


@pytest.mark.timeout(120)
def test_thirty_kinds_of_fault_on_the_mock_cluster() -> None:
    figures = disturb(20_000)
    assert len(+figures.faults) >= 30, "kinds that happened"
    check(figures, longest_stall_s=20)


@pytest.mark.timeout(120)
def test_a_static_topic_moves_between_faults_of_the_mock_cluster() -> None:
    figures = disturb(20_000 if FULL else 2_000, static=True)
    assert sum("move" in kind for kind in figures.faults) == 2
    check(figures, longest_stall_s=20)


@pytest.mark.needs("cluster", "kills")
@pytest.mark.timeout(900)
def test_servers_of_a_real_cluster_die_and_come_back(spark: SparkSession, tmp_path: Path) -> None:
    with chaos_cluster() as cluster:
        pace_s = 0.02 if FULL else 0.1
        figures, copy = disturb_cluster(cluster, spark, tmp_path, with_tools=FULL, pace_s=pace_s)
    print(copy)
    check(figures, longest_stall_s=120)
    assert (copy.lost, copy.disordered) == (0, 0)
    assert copy.copied >= figures.read
