"""The files of a query's checkpoint: on this machine, or on any file system that Spark can reach."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pyspark_rocketmq.spark.filesystem import local_folder

__all__ = ["CheckpointFiles", "LocalCheckpointFiles", "checkpoint_files"]


class CheckpointFiles(Protocol):
    """Access to a checkpoint's folder. ``str()`` of it is its location. Failures are ``OSError``."""

    def batches(self, log: str) -> list[int]:
        """Return the numbers of the batches in a log; none if the log does not exist."""

    def read(self, name: str) -> str:
        """Return a file's text."""

    def replace(self, name: str, text: str) -> None:
        """Replace a file atomically: a reader sees the old file or the new one, never a part."""


def checkpoint_files(where: str | Path) -> CheckpointFiles:
    """Return the files of a path or URI. For a URI of another file system Spark's JVM is started.

    Spark's configuration (``SPARK_CONF_DIR``) says how to reach the file system.
    """
    folder = local_folder(where)
    if folder is not None:
        return LocalCheckpointFiles(folder)
    from pyspark_rocketmq.tools.hadoop_checkpoint import hadoop_checkpoint_files  # noqa: PLC0415 - Spark

    return hadoop_checkpoint_files(str(where))


class LocalCheckpointFiles:
    """A local folder.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def batches(self, log: str) -> list[int]:
        """See `CheckpointFiles`."""
        return [int(file.name) for file in (self._folder / log).glob("[0-9]*") if file.name.isdigit()]

    def read(self, name: str) -> str:
        """See `CheckpointFiles`."""
        return (self._folder / name).read_text(encoding="utf-8")

    def replace(self, name: str, text: str) -> None:
        """See `CheckpointFiles`. Hadoop's checksum of the old file is deleted first."""
        file = self._folder / name
        new = file.with_name(f".{file.name}.new")
        new.write_text(text, encoding="utf-8")
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        new.replace(file)
