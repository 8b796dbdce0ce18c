"""The room that brokers need on a disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from pyspark_rocketmq.errors import DevClusterError

__all__ = ["check_disk"]

_LIMIT: Final = 0.9


def check_disk(home: Path) -> None:
    """Raise if brokers would reject every message because the disk is full. No setting lifts that limit."""
    disk = shutil.disk_usage(home)
    used = disk.used / (disk.used + disk.free)
    if used >= _LIMIT:
        raise DevClusterError(
            f"the disk is {used:.0%} full and RocketMQ refuses messages from {_LIMIT:.0%} on: "
            "make room, or choose a workdir (or TMPDIR) on another disk",
            folder=home,
        )
