"""Option values in a separate file, so that a program need not contain secrets."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from pyspark_rocketmq.errors import OptionError

__all__ = ["read_values"]


def read_values(path: str, names: Collection[str], *, option: str) -> dict[str, str]:
    """Read ``name=value`` or ``name: value`` lines; ``#`` starts a comment line.

    The file of RocketMQ's tools (``conf/tools.yml``) has this format.

    Parameters
    ----------
    path : str
    names : collection of str
        The names that the file may set, in any case.
    option : str
        The option that names the file.

    Returns
    -------
    dict
        Values by name, spelled as in ``names``.

    Raises
    ------
    OptionError
        The file cannot be read, or a line is invalid. The error shows nothing of a line but an unknown name.
    """
    known = {name.lower(): name for name in names}
    lines, problem = _read_lines(path)
    if problem:
        raise OptionError(f"the file cannot be read: {problem}", option=option, path=path)
    values: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, separator, value = _part(line)
        value = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
        if not separator or name.lower() not in known or not value:
            raise OptionError(
                f"line {number} of the file is not one of {', '.join(names)} with a value, as name=value",
                option=option,
                path=path,
            )
        values[known[name.lower()]] = value
    return values


def _read_lines(path: str) -> tuple[list[str], str | None]:
    """Return the lines, or why there are none: the error itself would hold the file's content."""
    try:
        return Path(path).read_text(encoding="utf-8-sig").splitlines(), None
    except UnicodeDecodeError:
        return [], "it is not UTF-8"
    except ValueError as error:  # a NUL in the path
        return [], str(error)
    except OSError as error:
        return [], error.strerror


def _part(line: str) -> tuple[str, str, str]:
    at = min((found for found in (line.find("="), line.find(":")) if found >= 0), default=len(line))
    return line[:at].strip(), line[at : at + 1], line[at + 1 :].strip()
