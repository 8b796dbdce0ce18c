"""Texts that commands read."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark_rocketmq.errors import OptionError

__all__ = ["read_text"]


def read_text(file: str, what: str = "the file") -> str:
    """Return the text of a file, or of standard input if it is ``-``.

    Raises
    ------
    OptionError
        It cannot be read, or is not UTF-8.
    """
    try:
        if file == "-":
            return sys.stdin.read().removeprefix("\ufeff")
        return Path(file).read_text(encoding="utf-8-sig")  # editors of Windows write a byte order mark
    except OSError as error:
        raise OptionError(f"{what} cannot be read: {error.strerror}", file=file) from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{what} is not UTF-8: {error.reason}", file=file) from error
