"""Profiles: named clusters in one TOML file, with secrets by reference.

The file belongs to the user, not to a program. It says how to reach each cluster, and where its secrets are::

    [profiles.production]
    nameServer = "ns-1:9876;ns-2:9876"
    tls = true
    accessKey = { env = "PRODUCTION_USER" }
    secretKey = { command = ["pass", "show", "rocketmq/production"] }
"""

from __future__ import annotations

import codecs
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model.names import suggest_names
from pyspark_rocketmq.options.declare import Option

__all__ = ["CONFIG_FILE_ENV", "config_file", "profile_names", "read_profile"]

CONFIG_FILE_ENV: Final = "ROCKETMQ_CONFIG_FILE"
"""The environment variable with another path of the file."""

_COMMAND_TIMEOUT_S: Final = 30
_REFERENCES: Final = ("env", "file", "command")
_REFERENCE_SHAPES: Final = '{ env = "NAME" }, { file = "path" } or { command = ["program", "argument"] }'


def config_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the file.

    It is ``$ROCKETMQ_CONFIG_FILE``, else ``pyspark-rocketmq/config.toml`` in ``$XDG_CONFIG_HOME``, else in
    ``~/.config``.

    Raises
    ------
    OptionError
        The user has no home directory.
    """
    given = environ.get(CONFIG_FILE_ENV, "").strip()
    home = environ.get("XDG_CONFIG_HOME", "").strip() or "~/.config"
    return _expand(given or f"{home}/pyspark-rocketmq/config.toml")


def profile_names(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the profiles.

    Raises
    ------
    OptionError
        The file cannot be read, or is invalid.
    """
    return tuple(_read_profiles(config_file(environ)))


def read_profile(name: str, options: Sequence[Option], environ: Mapping[str, str]) -> dict[str, str]:
    """Read the options of a profile. Values that are references are looked up now.

    Parameters
    ----------
    name : str
    options : sequence of Option
        The options that a profile may set.
    environ : Mapping
        The environment, for the path of the file and for references.

    Returns
    -------
    dict
        Texts by the options' names.

    Raises
    ------
    OptionError
        The file cannot be read or is invalid, has no such profile, or a reference has no value. The error
        shows no value of an option that may be secret.
    """
    path = config_file(environ)
    profiles = _read_profiles(path)
    if name not in profiles:
        guess = suggest_names(name, profiles)
        known = f"the profiles are: {', '.join(profiles)}" if profiles else "the file has no profiles"
        hint = f"{guess} {known[0].upper()}{known[1:]}" if guess else known
        raise OptionError(f"unknown profile {name}: {hint}", option="profile", path=str(path))
    by_key = {spelling.lower(): o for o in options for spelling in o.spellings}
    texts: dict[str, str] = {}
    for key, value in profiles[name].items():
        where = f"{key} of profile {name}"
        found = by_key.get(key.lower())
        if found is None:
            guess = suggest_names(key, (spelling for o in options for spelling in o.spellings))
            raise OptionError(
                f"unknown option {where}: {guess or 'a profile sets options of the connection'}",
                option=key,
                path=str(path),
            )
        if found.name in texts:
            raise OptionError(f"{found.name} is set twice in profile {name}", option=key, path=str(path))
        texts[found.name] = _look_up(value, where, environ, path, secret=found.secret)
    return texts


def _expand(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise OptionError(
            f"the user has no home directory: set {CONFIG_FILE_ENV} to the path of the file with profiles",
            option="profile",
        ) from None


def _read_profiles(path: Path) -> dict[str, dict[str, Any]]:
    text = _read_text(path, f"the file with profiles (set {CONFIG_FILE_ENV} for another path)")
    problem = ""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem = str(error)
    if problem:  # raised here: the error above holds the whole file
        raise OptionError(f"the file with profiles is not TOML: {problem}", option="profile", path=str(path))
    for key in content.keys() - {"profiles"}:
        raise OptionError(
            f"unknown table {key}: the file has tables [profiles.NAME] only", option="profile", path=str(path)
        )
    profiles = content.get("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(each, dict) for each in profiles.values()):
        raise OptionError(
            "a profile is a table: [profiles.NAME], and below it lines name = value",
            option="profile",
            path=str(path),
        )
    return profiles


def _look_up(value: Any, where: str, environ: Mapping[str, str], path: Path, *, secret: bool) -> str:
    """Return the text of one value, which may be a reference."""
    match value:
        case dict():
            text = _follow(value, where, environ, path)
        case _ if secret:
            raise OptionError(
                f"{where} is written into the file: give a reference, {_REFERENCE_SHAPES}",
                option="profile",
                path=str(path),
            )
        case bool():
            text = str(value).lower()
        case str() | int():
            text = str(value).strip()
        case _:
            raise OptionError(
                f"{where} must be a text, a whole number, true, false, or a reference: {_REFERENCE_SHAPES}",
                option="profile",
                path=str(path),
            )
    if not text:
        raise OptionError(f"{where} is empty", option="profile", path=str(path))
    if "\n" in text:
        raise OptionError(
            f"{where} has several lines: the reference must have the value only",
            option="profile",
            path=str(path),
        )
    return text


def _follow(reference: Mapping[str, Any], where: str, environ: Mapping[str, str], path: Path) -> str:
    match dict(reference):
        case {"env": str(name), **rest} if not rest:
            if name not in environ:
                raise OptionError(
                    f"{where} refers to the environment variable {name}, which is not set", option="profile"
                )
            return environ[name].strip()
        case {"file": str(name), **rest} if not rest:
            return _read_text(_expand(name), f"the file of {where}").strip()
        case {"command": [str(), *_] as words, **rest} if not rest and all(
            isinstance(word, str) for word in words
        ):
            return _run(words, where).strip()
    unknown = next((key for key in reference if key not in _REFERENCES), None)
    guess = suggest_names(unknown, _REFERENCES) if unknown else ""
    raise OptionError(
        f"{where} is no reference: {guess + ' ' if guess else ''}expected {_REFERENCE_SHAPES}",
        option="profile",
        path=str(path),
    )


def _read_text(path: Path, what: str) -> str:
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # a NUL in a path is a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        raise OptionError(f"{what} cannot be read: {reason}", option="profile", path=str(path)) from None
    return _decode(content, what, path=str(path))


def _run(words: Sequence[str], where: str) -> str:
    """Return what a program prints. Errors show its name only: arguments and output may be secret."""
    failure = ""
    output = b""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        failure = f"did not end within {_COMMAND_TIMEOUT_S} s"
    except (OSError, ValueError) as error:
        failure = f"cannot be started: {error.strerror if isinstance(error, OSError) else error}"
    else:
        output = done.stdout
        if done.returncode:
            failure = f"ended with code {done.returncode}; run it to see why"
    if failure:  # raised here: a time-out holds the output
        raise OptionError(f"the command of {where} {failure}", option="profile", program=words[0])
    return _decode(output, f"the output of the command of {where}", program=words[0])


def _decode(content: bytes, what: str, **facts: str) -> str:
    content = content.removeprefix(codecs.BOM_UTF8)  # editors of Windows write one
    text = content.decode(errors="replace")
    if "\ufffd" in text and content != text.encode():  # a UnicodeDecodeError would hold the content
        raise OptionError(f"{what} is not UTF-8", option="profile", **facts)
    return text
