"""The processes of a test run share a cluster, which starts once and ends with the run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.support.shared_cluster import ClusterOwner, join_cluster, settings_lock

from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import DevClusterError, OptionError

ROOT = Path(__file__).parents[2]


class Started:
    """Stands for a cluster of one broker."""

    version = "5.4.0"
    name_server = "127.0.0.1:9876"
    brokers = (SimpleNamespace(name="broker-a", address="127.0.0.1:10911"),)
    jars = (Path("broker.jar"),)

    def __init__(self, home: Path) -> None:
        self.home = home
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1


@pytest.fixture
def starts(tmp_path: Path) -> list[Started]:
    return []


@pytest.fixture
def owner(tmp_path: Path, starts: list[Started]) -> Iterator[ClusterOwner]:
    def start() -> DevCluster:
        starts.append(Started(tmp_path))
        return cast("DevCluster", starts[-1])

    owner = ClusterOwner(start)
    yield owner
    owner.close()


def test_a_cluster_that_nobody_asks_for_is_not_started(owner: ClusterOwner, starts: list[Started]) -> None:
    owner.close()
    assert starts == []
    with pytest.raises(OSError, match="refused"):
        join_cluster(owner.address)


def test_it_starts_once_for_all_and_ends_with_its_owner(owner: ClusterOwner, starts: list[Started]) -> None:
    with ThreadPoolExecutor(8) as threads:
        joined = list(threads.map(join_cluster, [owner.address] * 8))
    (cluster,) = starts
    assert {each.name_server for each in joined} == {cluster.name_server}
    assert {each.broker().address for each in joined} == {"127.0.0.1:10911"}
    assert {each.jars for each in joined} == {cluster.jars}
    assert cluster.stops == 0
    owner.close()
    assert cluster.stops == 1


def test_who_joins_can_neither_start_nor_stop_it(owner: ClusterOwner, starts: list[Started]) -> None:
    joined = join_cluster(owner.address)
    for use in (joined.start, joined.stop, joined.__enter__):
        with pytest.raises(AssertionError, match="other tests use"):
            use()
    with pytest.raises(OptionError, match="no such broker"):
        joined.broker("broker-b")
    assert starts[0].stops == 0


def test_processes_lock_one_file_and_keep_their_tools_apart(owner: ClusterOwner, tmp_path: Path) -> None:
    joined = join_cluster(owner.address)
    code = (
        "from tests.support.shared_cluster import join_cluster, settings_lock\n"
        f"joined = join_cluster({owner.address!r})\n"
        "print(joined.home, settings_lock(joined), sep='\\n')"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src")))}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    home, lock = map(Path, done.stdout.splitlines())
    assert lock == settings_lock(joined) == settings_lock(cast("DevCluster", Started(tmp_path)))
    assert home != joined.home
    assert {home.parent, joined.home.parent} == {tmp_path}


def test_a_cluster_that_does_not_start_is_told_to_each(tmp_path: Path) -> None:
    def start() -> DevCluster:
        raise DevClusterError("no Java was found")

    owner = ClusterOwner(start)
    try:
        for _ in range(2):
            with pytest.raises(DevClusterError, match="no Java was found"):
                join_cluster(owner.address)
    finally:
        owner.close()
    assert "shared-cluster" not in {thread.name for thread in threading.enumerate()}
