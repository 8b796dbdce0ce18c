"""How times are written in texts, and read: as they are."""

# Facts (Spark 4.0 to 4.3, JSONOptions, CSVOptions): to_json and to_csv cut times to milliseconds. from_json
# and from_csv read all digits. Before about 1900, offsets of zones had seconds, which XXX leaves out.
# Spark 1.4 wrote dates as days since 1970. The fallback of JSON's parser takes a text of digits that is no
# date for such days: "20260101" is in the year 57440.

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["EXACT_TIMES", "EXACT_TIMES_OF_SQL", "NO_OLD_TIMES", "add_defaults"]

EXACT_TIMES: Final[Mapping[str, str]] = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""The options that write times in ISO 8601."""

NO_OLD_TIMES: Final[Mapping[str, str]] = {"enableDateTimeParsingFallback": "false"}
"""The option that reads none of the texts that only early releases of Spark wrote."""

EXACT_TIMES_OF_SQL: Final[Mapping[str, str]] = dict.fromkeys(EXACT_TIMES, "yyyy-MM-dd HH:mm:ss.SSSSSS")
"""The options that write them as literals of SQL."""


def add_defaults(defaults: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return options with defaults for those that are not given, whatever the case of their names."""
    names = {name.lower() for name in given}
    return {name: value for name, value in defaults.items() if name.lower() not in names} | {**given}
