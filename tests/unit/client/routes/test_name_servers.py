from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.support.clocks import FakeClock
from tests.support.fakes import Highest

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.routes.name_servers import NameServers
from pyspark_rocketmq.errors import NameServerError, RequestTimeoutError

ADDRESSES = ("a:9876", "b:9876")


@dataclass
class SlowServers:
    """A pool whose servers accept a connection after some time and never answer."""

    connect_s: float = 0.0
    clock: FakeClock = field(default_factory=FakeClock)
    asked: list[str] = field(default_factory=list)
    addr: str = ""

    def get(self, addr: str) -> SlowServers:
        self.clock.now_s += self.connect_s
        self.addr = addr
        return self

    def call(self, request: object, body: bytes = b"", *, deadline: Deadline) -> None:
        del request, body
        self.asked.append(self.addr)
        self.clock.now_s += deadline.remaining_s
        raise RequestTimeoutError(f"no answer within {deadline.timeout_ms:.0f} ms", addr=self.addr)

    def name_servers(self, *addresses: str) -> NameServers:
        return NameServers(self, addresses, clock=self.clock, random=Highest())


def test_an_error_says_how_long_was_waited() -> None:
    servers = SlowServers(connect_s=0.1)
    with pytest.raises(NameServerError, match=r"did not answer within 0\.3 s") as caught:
        servers.name_servers("a:9876").topics(deadline=Deadline(servers.clock, 300))
    assert servers.asked == ["a:9876"]
    assert "attempts" not in caught.value.facts


def test_a_connection_that_takes_all_the_time_is_the_reason() -> None:
    servers = SlowServers(connect_s=0.4)
    with pytest.raises(NameServerError, match=r"did not answer within 0\.4 s") as caught:
        servers.name_servers("a:9876").topics(deadline=Deadline(servers.clock, 300))
    assert "connected: no answer within 300 ms" in str(caught.value.__cause__)
    assert servers.asked == [], "a request that is answered within 0 ms tells nothing"


def test_a_name_server_that_was_not_asked_is_not_blamed() -> None:
    servers = SlowServers(connect_s=0.3)
    name_servers = servers.name_servers(*ADDRESSES)
    with pytest.raises(NameServerError) as caught:
        name_servers.topics(deadline=Deadline(servers.clock, 300))
    assert "a:9876: it accepted the connection but did not answer within 0.3 s" in caught.value.message
    assert caught.value.message.endswith("; b:9876: not asked, 300 ms had passed")


def test_one_that_hangs_leaves_time_for_the_others() -> None:
    servers = SlowServers()
    name_servers = servers.name_servers(*ADDRESSES)
    with pytest.raises(NameServerError, match=r"a:9876: .* 0\.2 s.*; b:9876: .* 0\.2 s"):
        name_servers.topics(deadline=Deadline(servers.clock, 400))
    assert servers.asked == ["a:9876", "b:9876"]


def test_one_that_took_all_the_time_is_asked_last_the_next_time() -> None:
    servers = SlowServers(connect_s=0.3)
    name_servers = servers.name_servers(*ADDRESSES)
    for first, other in (ADDRESSES, reversed(ADDRESSES)):
        with pytest.raises(NameServerError, match=f"answers: {first}: it accepted.*; {other}: not asked"):
            name_servers.topics(deadline=Deadline(servers.clock, 300))


def test_no_pass_begins_without_time() -> None:
    servers = SlowServers()
    over = Deadline(servers.clock, 0)
    with pytest.raises(NameServerError, match="a:9876: not asked, 0 ms had passed"):
        servers.name_servers("a:9876").topics(deadline=over)
    assert servers.asked == []
