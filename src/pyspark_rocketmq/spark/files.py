"""Folders that every process of a job can open: paths and URIs, through Arrow."""

from __future__ import annotations

from pyarrow import fs

__all__ = ["file_system"]


def file_system(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it."""
    if "://" in path or path.startswith("file:"):
        filesystem, inner = fs.FileSystem.from_uri(path)
        return filesystem, inner
    return fs.LocalFileSystem(), path
