"""The clients of a process, by their options."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from tests.network.test_connection import echo, request
from tests.support.scripted_peer import ScriptedPeer

from pyspark_rocketmq.client import shared
from pyspark_rocketmq.options import ClientOptions, parse_options


@pytest.fixture(autouse=True)
def _of_this_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(shared, "_shared", shared._SharedClients())
    yield
    for client in shared._shared.clients.values():
        client.close()


def options(token: int) -> ClientOptions:
    given = {"nameServer": "127.0.0.1:9", "accessKey": "a", "secretKey": "b", "securityToken": f"t{token}"}
    return parse_options(ClientOptions, given, environ={})


def test_equal_options_share_a_client() -> None:
    assert shared.shared_client(options(1)) is shared.shared_client(options(1))
    assert shared.shared_client(options(2)) is not shared.shared_client(options(1))


def test_clients_of_credentials_that_were_replaced_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker lives for weeks, and tokens are replaced every hour."""
    monkeypatch.setattr(shared, "_MOST", 3, raising=False)
    with ScriptedPeer(echo) as peer:
        streams = []
        for token in range(8):
            stays = shared.shared_client(options(99)).connection(peer.addr)
            connection = shared.shared_client(options(token)).connection(peer.addr)
            connection.call(request())
            streams.append(connection._socket._stream)
            del connection
        gc.collect()
        assert [stream._sock.fileno() == -1 for stream in streams] == [True] * 6 + [False] * 2
        assert stays.alive
        assert shared.shared_client(options(99)).connection(peer.addr) is stays


def test_a_client_that_is_in_use_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_MOST", 1, raising=False)
    with ScriptedPeer(echo) as peer:
        used = shared.shared_client(options(1))
        used.connection(peer.addr).call(request())
        shared.shared_client(options(2))
        gc.collect()
        assert bytes(used.connection(peer.addr).call(request(7)).body) == b"7"
        assert peer.connections == 1
        gone = weakref.ref(used)
        del used
        gc.collect()
        assert gone() is None
