"""The log of Spark's file sink: which rows of a folder would not be written, or not be read.

# Facts (FileStreamSink, MetadataLogFileIndex; Spark 4.0 to 4.3): a stream writes no batch whose number is
not above the last one in ``_spark_metadata``. Where that exists, readers see the files that it names, and no
others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.spark.filesystem import local_folder

__all__ = [
    "batch_numbers",
    "check_new_batches",
    "check_readable",
    "files_folder",
    "forget_unwritten_start",
    "last_batch",
    "logged_batches",
    "table_folder",
]

_LOG: Final = "_spark_metadata"
_OFFSETS: Final = "offsets"
_FORMATS: Final = frozenset({"avro", "csv", "json", "orc", "parquet", "text"})


def batch_numbers(folder: Path, prefix: str = "") -> list[int]:
    """Return the numbers of the batches that a folder has, by the names of its files."""
    names = [each.name.removeprefix(prefix) for each in folder.glob(f"{prefix}[0-9]*")]
    return [int(number) for number in (name.removesuffix(".compact") for name in names) if number.isdigit()]


def logged_batches(folder: Path) -> list[int]:
    """Return the numbers of the batches in a folder's log."""
    return batch_numbers(folder / _LOG)


def last_batch(checkpoint: str) -> int | None:
    """Return the last batch that a checkpoint knows, -1 if it has none. None on other file systems."""
    folder = local_folder(checkpoint)
    return None if folder is None else max(batch_numbers(folder / _OFFSETS), default=-1)


def forget_unwritten_start(checkpoint: str) -> None:
    """Remove what is left of a query's first offsets, whose process was killed, or whose disk was full.

    Spark does not start if the offset log has no entry but is not empty. Checkpoints on other file systems
    are not changed. No other process may run the query.
    """
    folder = local_folder(checkpoint)
    if folder is None or not (folder / _OFFSETS).is_dir():
        return
    left = list((folder / _OFFSETS).iterdir())
    if all(".tmp" in file.name for file in left):
        for file in left:
            file.unlink()


def check_new_batches(target: str, path: str, checkpoint: str) -> None:
    """Raise an error if a stream's batches would not be written to a folder, or hide the files that exist.

    Folders and checkpoints on other file systems are not checked.

    Raises
    ------
    RocketMQError
        The folder has batches that the checkpoint does not know, or files of others.
    """
    folder, known = local_folder(path), last_batch(checkpoint)
    if folder is None or known is None:
        return
    written = max(logged_batches(folder), default=-1)
    if written > known:
        raise RocketMQError(
            f"the folder of {target} has results up to batch {written}, which the query's checkpoint does "
            "not know: another query has written them, or this one before its checkpoint was removed. The "
            "batches of this one would not be written, because Spark would take them for those: give it "
            "another folder",
            folder=path,
            checkpoint=checkpoint,
        )
    if written < 0 and known < 0 and _has_files(folder):
        raise RocketMQError(
            f"the folder of {target} has files that no stream has written, and Spark's readers would not "
            "see them any more: they see only the files of the stream. Give it another folder",
            folder=path,
        )


def check_readable(target: str, path: str) -> None:
    """Raise an error if the files of a batch would not be read in a folder.

    Raises
    ------
    RocketMQError
        A stream has written the folder.
    """
    folder = local_folder(path)
    if folder is not None and logged_batches(folder):
        raise RocketMQError(
            f"a stream has written the folder of {target}, and Spark's readers see only its files: they "
            "would not see those of a batch. Give it another folder",
            folder=path,
        )


def table_folder(spark: SparkSession, table: str) -> str | None:
    """Return the folder of a table of files in Spark's catalog. None for other tables, and for none."""
    try:
        (row,) = spark.sql(f"DESCRIBE TABLE EXTENDED {table} AS JSON").collect()
    except PySparkException:  # it does not exist, or is not of Spark's own catalog
        return None
    return files_folder(json.loads(row[0]))


def files_folder(described: Mapping[str, Any]) -> str | None:
    """Return the folder of a table that ``DESCRIBE TABLE EXTENDED … AS JSON`` describes, if it has files."""
    return described.get("location") if described.get("provider") in _FORMATS else None


def _has_files(folder: Path) -> bool:
    """Whether a folder has files that readers see."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return any(not any(part.startswith(("_", ".")) for part in f.relative_to(folder).parts) for f in files)
