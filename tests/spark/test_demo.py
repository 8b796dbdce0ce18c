"""The demonstration as a user runs it, from the installed wheel, from nothing back to nothing."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest
from tests.support.wheel import ROOT, Installation, build

from pyspark_rocketmq.demo.orders import orders

MESSAGES = 2_000


def processes_with(mark: str) -> list[str]:
    """Return the command lines of the processes that inherited this variable."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:  # it has just ended
                continue
    return found


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("installed")
    (wheel,) = build(ROOT, folder / "dist", "wheel")
    return Installation(folder / "venv", wheel, "spark")


@pytest.mark.needs("cluster", "programs")
def test_the_demo_shows_exact_totals_and_leaves_nothing_behind(installed, tmp_path):
    mark = f"DEMO_RUN={secrets.token_hex(8)}"
    name, value = mark.split("=")
    done = installed.run(
        "pyspark-rocketmq",
        *("demo", "--messages", str(MESSAGES), "--rate", "0"),
        cwd=tmp_path,
        timeout_s=280,
        TMPDIR=str(tmp_path),
        **{name: value},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cents = sum(order.cents for order in orders(MESSAGES, start_ms=0))
    money = f"€{cents // 100:,}.{cents % 100:02}"
    assert f"{MESSAGES:,} orders, {money}: each of 32 sums equals what was sent" in done.stdout
    assert done.stdout.count(money) == 2  # in the table's last line too
    assert "start RocketMQ" in done.stdout
    assert done.stderr == ""
    assert processes_with(mark) == []
    assert list(tmp_path.iterdir()) == []
