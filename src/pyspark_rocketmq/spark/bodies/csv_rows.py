"""Rows of CSV as they are: with the white space and the empty texts that they have."""

# Facts (Spark 4.0 to 4.3, CSVOptions, UnivocityGenerator, UnivocityParser): to_csv removes characters up to
# the space from both ends of a text. An empty text is written as "", which from_csv reads as null, because
# the text of a null is the empty one. Without a quote character, "" is taken as it is.

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["reading_settings", "writing_settings"]

_READ_AS_NULL: Final = "\ufdd0"
"""The text of an empty field, which is null: a character that Unicode leaves to programs, in no text."""

_KEEP_SPACE: Final = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}


def reading_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options for ``from_csv``."""
    return _defaults({"nullValue": _READ_AS_NULL}, given) | {**given}


def writing_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options for ``to_csv``."""
    unquoted = {"emptyValue": ""} if given.get("quote") == "" else {}
    return _defaults({**_KEEP_SPACE, **unquoted}, given) | {**given}


def _defaults(settings: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that are not given, whatever the case of their names."""
    names = {name.lower() for name in given}
    return {name: value for name, value in settings.items() if name.lower() not in names}
