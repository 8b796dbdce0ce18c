"""How options are parsed: once, at the edge, with every source of values in order of precedence."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any, Final, TypeVar

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model.arguments import require
from pyspark_rocketmq.model.names import suggest_names
from pyspark_rocketmq.options.client import ClientOptions
from pyspark_rocketmq.options.declare import (
    GROUP_KEY,
    OPTION_KEY,
    CompatibilityWarning,
    Option,
    Options,
    Where,
    list_declared,
)
from pyspark_rocketmq.options.stored.credentials import read_values

__all__ = ["connection_options", "parse_options"]

O = TypeVar("O", bound="Options")  # noqa: E741 - O for options

_OF_CATALOG: Final = "option."
"""How Spark repeats the options of ``CREATE TABLE … USING``."""

_PATHS: Final = frozenset({"path", "paths"})
"""How Spark passes the argument of ``load``, ``save`` and ``start``."""

_CREDENTIALS: Final = frozenset({"accessKey", "secretKey", "securityToken", "credentialsFile"})


def parse_options(
    cls: type[O],
    given: Mapping[str, Any],
    *,
    where: Where | None = None,
    environ: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> O:
    """Parse a map of options.

    A value comes from the first of: the map, the files that options name, the profile, the environment,
    ``defaults``, the declaration.

    Parameters
    ----------
    cls : type
        The option class.
    given : Mapping
        Option names, in any case, to values: str, number or bool. None means "not set".
    where : str, optional
        The call that received the options. None omits the check that they have an effect there.
    environ : Mapping, optional
        The environment; by default that of the process.
    defaults : Mapping, optional
        Defaults that differ from the declared ones, by the options' names.

    Returns
    -------
    cls
        The checked values.

    Raises
    ------
    OptionError
        An option is unknown, malformed, missing, set twice with different values, or contradicts another.
    """
    options = list_declared(cls)
    texts, compatible, became = _sort_out(cls, options, given)
    misplaced = [o.name for o in options if o.name in texts and where and o.only and where not in o.only]
    _refuse_or_warn(cls, where, misplaced, compatible)
    if became:
        warnings.warn("; ".join(became), CompatibilityWarning, stacklevel=2)
    environ = os.environ if environ is None else environ
    texts, environ = _with_profile(options, texts, environ)
    return _build(cls, texts | _from_files(options, texts, environ), environ, defaults or {})


def _with_profile(
    options: tuple[Option, ...], texts: Mapping[str, tuple[str, str]], environ: Mapping[str, str]
) -> tuple[dict[str, tuple[str, str]], Mapping[str, str]]:
    """Return the texts with those of the named profile, and the environment without what these replace.

    Credentials are never put together from two places: if some are set directly, the profile's are not
    used; if the profile has some, the environment's are not used.
    """
    by_name = {o.name: o for o in options}
    declared = by_name.get("profile")
    if declared is None:
        return dict(texts), environ
    name = texts["profile"][0] if "profile" in texts else environ.get(declared.env or "", "").strip()
    if not name:
        return dict(texts), environ
    from pyspark_rocketmq.options.stored.profiles import read_profile  # noqa: PLC0415 - few have one

    of_connection = [o for o in list_declared(ClientOptions) if o.name != "profile"]
    found = read_profile(name, of_connection, environ)
    dropped = set(texts)
    if not _CREDENTIALS.isdisjoint(texts):
        dropped |= _CREDENTIALS
    elif not _CREDENTIALS.isdisjoint(found):
        hidden = {by_name[each].env for each in _CREDENTIALS}
        environ = {key: value for key, value in environ.items() if key not in hidden}
    if texts.get("tls", ("", ""))[0].lower() == "false":
        dropped |= {each for each in found if each.startswith("tls")}
    from_profile = {
        each: (text, f"{each} (from profile {name})") for each, text in found.items() if each not in dropped
    }
    return from_profile | dict(texts), environ


def _from_files(
    options: tuple[Option, ...], texts: Mapping[str, tuple[str, str]], environ: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Read the options that are set in files. Options set directly override a file of the environment.

    Raises
    ------
    OptionError
        An option is set both directly and in the file.
    """
    found: dict[str, tuple[str, str]] = {}
    for o in options:
        path = texts[o.name][0] if o.name in texts else environ.get(o.env or "", "").strip()
        beside = [name for name in o.holds if name in texts]
        if not o.holds or not path or (beside and o.name not in texts):
            continue
        if beside:
            raise OptionError(f"{beside[0]} and {o.name} are both given: keep one of them", option=o.name)
        values = read_values(path, o.holds, option=o.name)
        found |= {name: (value, f"{name} (from {o.name})") for name, value in values.items()}
    return found


def _sort_out(
    cls: type[Options], options: tuple[Option, ...], given: Mapping[str, Any]
) -> tuple[dict[str, tuple[str, str]], list[str], list[str]]:
    """Return (option name -> (text, spelling)), the keys without effect, and the translated ones."""
    by_key = {spelling.lower(): (o, spelling) for o in options for spelling in o.spellings}
    compatibility = {key.lower(): key for key in cls.COMPATIBILITY}
    texts: dict[str, tuple[str, str]] = {}
    compatible: list[str] = []
    became: list[str] = []
    for key, value in given.items():
        lowered = key.lower()
        if value is None or lowered in cls.IGNORED:
            continue
        if lowered in compatibility:
            compatible.append(compatibility[lowered])
            continue
        if lowered not in by_key:
            raise _of_other_side(key, cls) or _unknown(key, options, cls.ELSEWHERE)
        o, spelling = by_key[lowered]
        text = (str(value).lower() if isinstance(value, bool) else str(value)).strip()
        if (here := cls.TRANSLATED.get(lowered, {}).get(text.lower())) is not None:
            became.append(f"{key}={text} became {o.name}={here}")
            text = here
        if o.name in texts and texts[o.name][0] != text:
            raise OptionError(
                f"options {texts[o.name][1]} and {spelling} are the same option with different values: "
                f"give only {o.name}"
            )
        texts[o.name] = (text, spelling)
    return texts, compatible, became


def _of_other_side(key: str, cls: type[Options]) -> OptionError | None:
    """Return the error for an option of writes in a read, and the other way round."""
    from pyspark_rocketmq.options.sink import SinkOptions  # noqa: PLC0415 - for errors only
    from pyspark_rocketmq.options.source import SourceOptions  # noqa: PLC0415

    sides: dict[type[Options], tuple[type[Options], str]] = {
        SourceOptions: (SinkOptions, "that is an option of writes, and this is a read"),
        SinkOptions: (SourceOptions, "that is an option of reads, and this is a write"),
    }
    if cls not in sides:
        return None
    other, reason = sides[cls]
    known = {o.name.lower() for o in list_declared(other)}  # an alias may be a slip of a name of this side
    return OptionError(f"unknown option {key}: {reason}", option=key) if key.lower() in known else None


def _unknown(key: str, options: tuple[Option, ...], elsewhere: Mapping[str, str]) -> OptionError:
    if key.lower().startswith(_OF_CATALOG):
        return OptionError(
            "Spark's catalog does not keep the options of a table: instead of CREATE TABLE, use CREATE "
            "TEMPORARY VIEW name USING rocketmq OPTIONS (…), or a job of `pyspark-rocketmq sql`",
            option=key[len(_OF_CATALOG) :],
        )
    if key.lower() in _PATHS:
        return OptionError(
            "a topic has no path: name it in the option topic, and give load(), save() and start() none",
            option=key,
        )
    instead = next((o for o in options if o.name == elsewhere.get(key.lower())), None)
    if instead is not None:
        return OptionError(
            f"unknown option {key}: that is Kafka's name; here it is {instead.name} ({instead.kind.label}), "
            f"for example {instead.name}={instead.kind.example}",
            option=key,
        )
    guess = suggest_names(key, (spelling for o in options for spelling in o.spellings))
    names = ", ".join(sorted((o.name for o in options), key=str.lower))
    hint = f"{guess} The options" if guess else "The options"
    return OptionError(f"unknown option {key}: {hint} are: {names}", option=key)


def _refuse_or_warn(
    cls: type[Options], where: Where | None, misplaced: list[str], compatible: list[str]
) -> None:
    """Reject what would change the meaning of the result, warn once of what has no effect."""
    fatal = [o.name for o in list_declared(cls) if o.name in misplaced and o.ends]
    if fatal:
        raise OptionError(
            f"{', '.join(fatal)} bounds a batch read and means nothing for {where}: "
            "a stream has no end (use trigger(availableNow=True) to stop at what exists now)",
            option=fatal[0],
        )
    reasons = [f"{name} (means nothing for {where})" for name in misplaced]
    reasons += [f"{name} ({cls.COMPATIBILITY[name]})" for name in sorted(compatible)]
    if reasons:
        warnings.warn(f"options without effect: {'; '.join(reasons)}", CompatibilityWarning, stacklevel=4)


def _build(
    cls: type[O],
    texts: Mapping[str, tuple[str, str]],
    environ: Mapping[str, str],
    defaults: Mapping[str, str],
) -> O:
    values: dict[str, Any] = {}
    for declared in dataclasses.fields(cls):  # type: ignore[arg-type]  # every subclass is a dataclass
        if GROUP_KEY in declared.metadata:
            values[declared.name] = _build(declared.metadata[GROUP_KEY], texts, environ, defaults)
            continue
        o: Option = declared.metadata[OPTION_KEY]
        if o.name in texts:
            values[declared.name] = o.parse(*texts[o.name])
        elif o.env and environ.get(o.env, "").strip():
            values[declared.name] = o.parse(environ[o.env].strip(), f"{o.name} (from ${o.env})")
        elif o.name in defaults:
            values[declared.name] = o.parse(defaults[o.name], o.name)
        elif declared.default is MISSING:
            elsewhere = f" (or set the environment variable {o.env})" if o.env else ""
            wanted = f"{o.kind.label}, for example {o.name}={o.kind.example}"
            raise OptionError(f"option {o.name} is required: {wanted}{elsewhere}", option=o.name)
    return cls(**values)


def connection_options(given: ClientOptions | str) -> ClientOptions:
    """Return the options of a client; a text is the list of name servers.

    Raises
    ------
    OptionError
    """
    if isinstance(given, str):
        return parse_options(ClientOptions, {"nameServer": given}, environ={})
    must = 'ClientOptions, or the name servers as one text, such as "10.0.0.1:9876;10.0.0.2:9876"'
    return require(given, ClientOptions, "the name servers", must=must)
