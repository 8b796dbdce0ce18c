"""As much of Spark's JVM as the log of a direct stream uses: Hadoop's file system, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["HadoopFiles", "SparkContextWithFiles"]


@dataclass(slots=True)
class HadoopFiles:
    """Files by their paths. They survive the drivers that write them."""

    texts: dict[str, bytes] = field(default_factory=dict)

    def mkdirs(self, path: _Path) -> None:
        """Folders need not exist."""

    def listStatus(self, folder: _Path) -> list[_Path]:
        """Return what is in a folder."""
        return [_Path(self, name) for name in self.texts if name.startswith(f"{folder.name}/")]

    def open(self, path: _Path) -> _Stream:
        """Open a file for reading."""
        return _Stream(self, path.name)

    def create(self, path: _Path, overwrite: bool) -> _Stream:  # noqa: ARG002
        """Open a file for writing."""
        self.texts[path.name] = b""
        return _Stream(self, path.name)

    def delete(self, path: _Path, recursive: bool) -> None:  # noqa: ARG002
        """Delete a file."""
        self.texts.pop(path.name, None)


@dataclass(frozen=True, slots=True)
class _Path:
    files: HadoopFiles
    name: str

    def getFileSystem(self, settings: object) -> HadoopFiles:  # noqa: ARG002
        return self.files

    def getPath(self) -> _Path:
        return self

    def getName(self) -> str:
        return self.name.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class _Stream:
    files: HadoopFiles
    name: str

    def write(self, data: bytearray) -> None:
        self.files.texts[self.name] += bytes(data)

    def close(self) -> None:
        """Everything is written."""


class _Packages:
    """``org.apache...`` as attributes."""

    def __init__(self, files: HadoopFiles) -> None:
        self.org = self.apache = self.hadoop = self.fs = self.commons = self.io = self.IOUtils = self
        self._files = files

    def Path(self, folder: object, name: str) -> _Path:
        parent = folder.name if isinstance(folder, _Path) else folder
        return _Path(self._files, f"{parent}/{name}")

    def toString(self, stream: _Stream, encoding: str) -> str:
        return self._files.texts[stream.name].decode(encoding)


class SparkContextWithFiles:
    """A SparkContext that has only files."""

    def __init__(self, files: HadoopFiles) -> None:
        self._jvm = _Packages(files)
        self._jsc = self

    def hadoopConfiguration(self) -> None:
        """Nothing is configured."""
