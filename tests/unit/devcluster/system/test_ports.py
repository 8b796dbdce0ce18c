from __future__ import annotations

import random
import socket

import pytest

from pyspark_rocketmq.devcluster.system import ports
from pyspark_rocketmq.errors import DevClusterError


def test_a_port_whose_neighbour_is_taken_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_FIRST", port - 1)
        monkeypatch.setattr(ports, "_LAST", port)
        with pytest.raises(DevClusterError, match="no free port"):
            ports.free_port(random.Random(1), (0, 1))


def test_ports_are_chosen_below_those_of_outgoing_connections() -> None:
    source = random.Random(2)
    assert all(15_000 <= ports.free_port(source, ports.BROKER_PORTS) < 30_000 for _ in range(20))
