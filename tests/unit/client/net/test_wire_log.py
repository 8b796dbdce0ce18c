"""The wire log, line by line."""

from __future__ import annotations

import io

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client.net.wire_log import WireLog
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.remoting.command import FLAG_RESPONSE, Command


@pytest.mark.parametrize("secret", ["plain-secret", "back\\slash", "quote'secret", "z\u200bsecret"])
@pytest.mark.parametrize("before", [0, 190])
def test_a_remark_that_repeats_a_secret_does_not_show_it(secret: str, before: int) -> None:
    """Neither quoted, in which it looks different, nor cut short."""
    stream = io.StringIO()
    log = WireLog("127.0.0.1:1", FakeClock(), Credentials("user", secret), stream)
    remark = "x" * before + secret
    log.log_received(Command(code=1, opaque=1, flag=FLAG_RESPONSE, remark=remark), 0)
    assert f"remark='{'x' * before}***'" in stream.getvalue()
