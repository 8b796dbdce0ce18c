"""Folders that every process of a job can open: paths and URIs, through Arrow."""

from __future__ import annotations

import contextlib
import os
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from pyspark_rocketmq.errors import RocketMQError

__all__ = ["file_errors", "file_system", "local_folder", "write_durably"]


def file_system(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it.

    A local one is taken literally, as in Spark: ``%20`` is no space, ``#`` and ``?`` end nothing.
    """
    if path.startswith("file:"):
        path = f"file:{urllib.parse.quote(path.removeprefix('file:'), safe='/:')}"
    if "://" in path or path.startswith("file:"):
        filesystem, inner = fs.FileSystem.from_uri(path)
        return filesystem, inner
    return fs.LocalFileSystem(), path


def local_folder(where: str | Path) -> Path | None:
    """Return the local folder of a path or URI, or None for another file system.

    Examples
    --------
    >>> local_folder("file:///checkpoints/a"), local_folder("hdfs://namenode/checkpoints/a")
    (PosixPath('/checkpoints/a'), None)
    """
    text = str(where)
    if text.startswith("file:"):
        return Path("/" + text.removeprefix("file:").lstrip("/"))
    return None if "://" in text else Path(text)


@contextlib.contextmanager
def file_errors(told: str, **facts: Any) -> Iterator[None]:
    """Turn the errors of files into errors that say what was to be done where.

    Raises
    ------
    RocketMQError
        A file or folder cannot be read or written.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise RocketMQError(f"{told}: {error}", **facts) from error


def write_durably(
    filesystem: fs.FileSystem, path: str, write: Callable[[pa.NativeFile], None] | None = None
) -> None:
    """Write a file atomically, so that it survives a crash of the machine once this returns.

    A write that fails leaves no file.

    On a local disk, the file is synced (fsync). On other file systems, a closed file is as durable as they
    promise: object stores keep it; HDFS has it in the memory of all its replicas.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    path : str
        In a folder that need not exist.
    write : Callable, optional
        Writes the content; without it the file is empty.

    Raises
    ------
    OSError
    """
    folder = path.rpartition("/")[0]
    changed = _list_changed_folders(Path(folder)) if isinstance(filesystem, fs.LocalFileSystem) else []
    filesystem.create_dir(folder, recursive=True)
    hidden = f"{folder}/.{uuid.uuid4().hex}"
    try:
        with filesystem.open_output_stream(hidden) as stream:
            if write is not None:
                write(stream)
        if changed:
            _sync(Path(hidden))
        filesystem.move(hidden, path)
    except BaseException:
        with contextlib.suppress(OSError, pa.ArrowException):  # it may not exist
            filesystem.delete_file(hidden)
        raise
    for each in changed:
        _sync(each)


def _list_changed_folders(folder: Path) -> list[Path]:
    """Return the folders that get an entry when a file is created in this one, which may not exist yet."""
    changed = [folder]
    while not changed[-1].exists():
        changed.append(changed[-1].parent)
    return changed


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
