from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pyspark_rocketmq.devcluster.detached import DetachedServer, find_detached, stop_detached


def test_a_pid_that_was_given_to_another_process_is_not_ours() -> None:
    server = DetachedServer("broker-a", "127.0.0.1:1", os.getpid(), "/no/such/cluster/broker-a")
    assert not server.is_running
    assert server.rss_bytes == 0


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"servers": [{"pid": 1}]}'])
def test_a_state_file_that_is_none_is_no_cluster(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    assert find_detached(tmp_path) is None
    assert stop_detached(cache=tmp_path) is None


def test_no_state_file_is_no_cluster(tmp_path: Path) -> None:
    assert find_detached(tmp_path) is None


def test_stopping_forgets_a_cluster_whose_servers_are_gone_and_removes_their_folders(tmp_path: Path) -> None:
    home = tmp_path / "cluster" / "broker-a"
    home.mkdir(parents=True)
    server = {"name": "broker-a", "address": "127.0.0.1:2", "pid": os.getpid(), "home": str(home)}
    state = {"version": "5.4.0", "name_server": "127.0.0.1:1", "home": str(home.parent), "servers": [server]}
    (tmp_path / "cluster.json").write_text(json.dumps(state))
    stopped = stop_detached(cache=tmp_path)
    assert stopped is not None
    assert not home.exists()
    assert find_detached(tmp_path) is None
