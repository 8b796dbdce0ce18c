"""An archive with a manifest, from whose texts the known secrets are removed."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from pyspark_rocketmq.errors import OptionError

__all__ = ["BundleArchive", "BundleFile", "hide_secrets"]

_HIDDEN: Final = "***"
_MANIFEST: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A file of a bundle, and what is in it."""

    name: str
    what: str
    bytes: int
    sha256: str


def hide_secrets(value: Any, secrets: Iterable[str]) -> Any:
    """Return a plain value without these texts, also within longer texts and in names."""
    ordered = sorted(filter(None, secrets), key=len, reverse=True)

    def hide(value: Any) -> Any:
        match value:
            case str():
                for secret in ordered:
                    value = value.replace(secret, _HIDDEN)
                return value
            case dict():
                return {hide(name): hide(each) for name, each in value.items()}
            case list() | tuple():
                return [hide(each) for each in value]
        return value

    return hide(value)


class BundleArchive:
    """Writes a new zip file that only its owner may read.

    ``close`` writes the manifest. The archive of a block that raises is removed.

    Parameters
    ----------
    path : Path
    secrets : iterable of str
        Texts that must not be in it.

    Raises
    ------
    OptionError
        The file exists, or cannot be written.
    """

    def __init__(self, path: Path, secrets: Iterable[str]) -> None:
        self._path = path
        self._secrets = tuple(secrets)
        self._files: list[BundleFile] = []
        try:
            self._raw = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")
        except FileExistsError:
            raise OptionError("the file exists: give the bundle another name", file=path) from None
        except OSError as error:
            raise self._unwritten(error) from error
        self._zip = zipfile.ZipFile(self._raw, "w", zipfile.ZIP_DEFLATED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        complete = False
        try:
            with self._raw:
                self._zip.close()
            complete = kind is None
        except OSError as error:
            if kind is None:
                raise self._unwritten(error) from error
        finally:
            if not complete:
                self._path.unlink(missing_ok=True)

    def _unwritten(self, error: OSError) -> OptionError:
        return OptionError(f"the bundle cannot be written: {error.strerror}", file=self._path)

    @property
    def files(self) -> tuple[BundleFile, ...]:
        """The files so far."""
        return tuple(self._files)

    def add(self, name: str, what: str, value: Any) -> None:
        """Add plain values as JSON."""
        plain = hide_secrets(value, self._secrets)
        self._write(name, what, json.dumps(plain, ensure_ascii=False, indent=2, default=str))

    def add_lines(self, name: str, what: str, lines: Iterable[Any]) -> None:
        """Add texts as lines, and other plain values as a line of JSON each."""
        hidden = (hide_secrets(line, self._secrets) for line in lines)
        texts = (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in hidden)
        self._write(name, what, "".join(f"{text}\n" for text in texts))

    def finish(self, **facts: Any) -> None:
        """Add the manifest: these facts, and every file with its size and hash."""
        manifest = facts | {"files": [asdict(file) for file in self._files]}
        self.add(_MANIFEST, "this list", manifest)

    def _write(self, name: str, what: str, text: str) -> None:
        data = text.encode(errors="replace")
        try:
            self._zip.writestr(name, data)
        except OSError as error:
            raise self._unwritten(error) from error
        self._files.append(BundleFile(name, what, len(data), hashlib.sha256(data).hexdigest()))
