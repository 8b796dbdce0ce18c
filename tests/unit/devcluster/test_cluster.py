from __future__ import annotations

import shutil
import socket
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from pyspark_rocketmq.devcluster import DevCluster, cluster, server
from pyspark_rocketmq.errors import ConnectionLostError, DevClusterError, OptionError, PortTakenError


@pytest.mark.parametrize("shape", [{"brokers": 0}, {"brokers": 27}, {"slaves": -1}, {"name_servers": 0}])
def test_a_shape_that_is_none(shape: dict[str, int]) -> None:
    with pytest.raises(OptionError, match="1 to 26 brokers"):
        DevCluster(**shape)


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_a_port_that_is_none(port: int) -> None:
    with pytest.raises(OptionError, match="from 1 to 65535; without one, a free one is used"):
        DevCluster(port=port)


def test_a_full_disk_is_told_before_a_broker_refuses_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "rocketmq_jars", lambda _: ())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=100, used=92, free=3))
    with pytest.raises(DevClusterError, match=r"97% full.*TMPDIR"):
        DevCluster(workdir=tmp_path).start()
    assert not list(tmp_path.iterdir())


def test_only_a_running_cluster_with_a_folder_of_its_own_can_be_detached(tmp_path: Path) -> None:
    for never_started in (DevCluster(), DevCluster(workdir=tmp_path)):
        with pytest.raises(DevClusterError, match="can be detached"):
            never_started.detach()


def test_a_given_port_that_is_in_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "rocketmq_jars", lambda _: ())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"in use: choose another one.*{port}"):
            DevCluster(workdir=tmp_path, port=port).start()


def test_a_cluster_that_did_not_start_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "rocketmq_jars", lambda _: ())
    never = Mock(side_effect=DevClusterError("a server ended"))
    monkeypatch.setattr(DevCluster, "_bring_up", never)
    local = DevCluster(workdir=tmp_path)
    for _ in range(2):
        with pytest.raises(DevClusterError, match="a server ended"):
            local.start()
    assert never.call_count == 2


def test_a_name_server_that_is_paused_does_not_know_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        server, "is_registered", Mock(side_effect=ConnectionLostError("no answer", addr="h:1"))
    )
    monkeypatch.setattr(server.Broker, "address", "h:2")
    broker = server.Broker.__new__(server.Broker)
    broker.broker_name, broker._name_servers = "broker-a", ()
    broker._runtime = SimpleNamespace(connection=None, clock=None)
    assert broker._is_registered(None) is False
