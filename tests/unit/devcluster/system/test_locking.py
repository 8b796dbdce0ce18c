"""A lock on a file: one holder, in this process and in others, and none after the holder's end."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.support.wait import eventually

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.devcluster.system.locking import file_lock, is_locked, try_file_lock
from pyspark_rocketmq.errors import DevClusterError

HOLDER = """
import pathlib, sys
from pyspark_rocketmq.devcluster.system.locking import try_file_lock
lock = try_file_lock(pathlib.Path(sys.argv[1]))
print(lock is not None, flush=True)
sys.stdin.read()
"""


def test_a_second_holder_waits_until_its_deadline(tmp_path: Path) -> None:
    file = tmp_path / "new" / "lock"
    with file_lock(file, Deadline(SYSTEM_CLOCK, 10_000), SYSTEM_CLOCK):
        with (
            pytest.raises(DevClusterError, match=r"kept this lock for 0\.2 s"),
            file_lock(file, Deadline(SYSTEM_CLOCK, 200), SYSTEM_CLOCK),
        ):
            pass
        assert try_file_lock(file) is None
    assert not is_locked(file)


def test_the_end_of_its_process_releases_it(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    assert not is_locked(file)
    assert not file.exists()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert is_locked(file)
        holder.kill()
        holder.wait()
    eventually(lambda: not is_locked(file))


def test_another_thread_can_release_it(tmp_path: Path) -> None:
    lock = try_file_lock(tmp_path / "lock")
    assert lock is not None
    release = threading.Thread(target=lock.__exit__, args=(None, None, None))
    release.start()
    release.join()
    assert not is_locked(tmp_path / "lock")
