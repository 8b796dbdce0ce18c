"""The JVM of a killed driver may still write: another one waits until it has ended."""

from __future__ import annotations

import fcntl
import subprocess
import sys

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.streams.run.driver_lock import driver_lock

HOLD = """
import fcntl, sys
held = open(sys.argv[1], "w")
fcntl.lockf(held, fcntl.LOCK_EX)
print(flush=True)
input()
"""


def is_held(file) -> bool:
    with file.open("w") as it:
        try:
            fcntl.lockf(it, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_driver_waits_for_the_one_before(spark, tmp_path, caplog):
    place, clock, file = str(tmp_path), FakeClock(), tmp_path / "driver.lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(file)], stdin=-1, stdout=-1, text=True) as before:
        before.stdout.readline()
        with pytest.raises(RocketMQError, match="did not end within 30 s"), driver_lock(spark, place, clock):
            pass
        assert "has not ended yet" in caplog.text
        clock.on_sleep = lambda: [before.kill(), before.wait()]
        with driver_lock(spark, place, clock):
            assert is_held(file)
    assert not is_held(file)


def test_a_checkpoint_elsewhere_has_no_lock(spark):
    clock = FakeClock()
    with driver_lock(spark, "hdfs://127.0.0.1:1/job", clock):
        assert clock.sleeps == []
