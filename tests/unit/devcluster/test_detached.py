from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from pyspark_rocketmq.devcluster import detached
from pyspark_rocketmq.devcluster.detached import (
    DetachedServer,
    find_detached,
    start_detached,
    stop_detached,
)
from pyspark_rocketmq.devcluster.settings import name_server_properties, properties_text
from pyspark_rocketmq.errors import DevClusterError


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


@pytest.fixture
def port_of_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int | None]:
    """The port that a start gives the cluster, which is not started."""

    def start(port: int | None = None) -> int | None:
        given: list[int | None] = []

        def no_cluster(*_: object, port: int | None, **__: object) -> NoReturn:
            given.append(port)
            raise DevClusterError("not in this test")

        monkeypatch.setattr(detached, "DevCluster", no_cluster)
        with pytest.raises(DevClusterError, match="not in this test"):
            start_detached(port=port, cache=tmp_path)
        return given[0]

    return start


def test_the_name_server_listens_on_rocketmq_s_port_if_it_is_free(
    port_of_start: Callable[..., int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "is_free", lambda port: True)
    assert port_of_start() == 9876
    assert port_of_start(port=19_876) == 19_876
    monkeypatch.setattr(detached, "is_free", lambda port: port != 9876)
    assert port_of_start() is None
    assert port_of_start(port=9876) == 9876, "a given port is used or refused"


def test_a_port_that_another_server_has_is_not_taken(
    port_of_start: Callable[..., int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr(detached, "DEFAULT_PORT", other.getsockname()[1])
        assert port_of_start() is None


def test_a_restart_keeps_the_port_that_its_folder_names(
    port_of_start: Callable[..., int | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = tmp_path / "cluster" / "namesrv-0" / "conf" / "server.properties"
    settings.parent.mkdir(parents=True)
    settings.write_text(properties_text(name_server_properties(15_432, {})))
    monkeypatch.setattr(detached, "is_free", lambda port: True)
    assert port_of_start() == 15_432
    settings.write_text("")
    assert port_of_start() == 9876
