"""The reference of all options as Markdown. Run as a module, it prints the reference."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from pyspark_rocketmq.options.client import ClientOptions
from pyspark_rocketmq.options.declare import OptionRow, Options, option_reference
from pyspark_rocketmq.options.dstream import DirectOptions
from pyspark_rocketmq.options.receiver import ReceiverOptions
from pyspark_rocketmq.options.sink import SinkOptions
from pyspark_rocketmq.options.source import SourceOptions
from pyspark_rocketmq.options.sql import JobOptions, TableOptions

__all__ = ["markdown_reference"]

_HEAD: Final = """# Options

Generated from the declarations that the parser reads (`make docs-options`). `pyspark-rocketmq options` prints
the same reference. Option names are not case-sensitive. An unknown option is an error that suggests the
nearest name. An invalid value is an error that says what is expected.
"""
_SECTIONS: Final[tuple[tuple[str, type[Options], str], ...]] = (
    ("Connections", ClientOptions, "For every API: reading, writing, DStreams, the listener."),
    ("Reading", SourceOptions, '`spark.read.format("rocketmq")` and `spark.readStream.format("rocketmq")`.'),
    ("Writing", SinkOptions, '`df.write.format("rocketmq")` and `df.writeStream.format("rocketmq")`.'),
    (
        "DStreams",
        DirectOptions,
        "`RocketMQUtils` and its strategies. The reading options that they accept are not repeated.",
    ),
    (
        "Receivers",
        ReceiverOptions,
        "`createInputDStream` and other receivers. The reading options that they accept are not repeated.",
    ),
    (
        "SQL tables",
        TableOptions,
        "`CREATE TABLE … WITH (…)`, in addition to the options of reading and writing.",
    ),
    ("SQL jobs", JobOptions, "`SET`, in addition to Spark's settings (`spark.…`)."),
)
_TABLE: Final = "| option | default | meaning | also |\n|---|---|---|---|"
_COMPATIBILITY: Final = (
    "Options of other connectors that have no effect here. They are accepted with a warning:\n"
)


def markdown_reference() -> str:
    """Return the whole reference."""
    return "\n".join([_HEAD, *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    told: set[str] = set()
    for title, cls, what in _SECTIONS:
        rows = [row for row in option_reference(cls) if row.name not in told]
        told |= {row.name for row in rows}
        yield "\n".join([f"## {title}\n", f"{what}\n", _TABLE, *map(_row, rows)])
        if cls.COMPATIBILITY:
            keys = [f"- `{key}`: {reason}" for key, reason in sorted(cls.COMPATIBILITY.items())]
            yield "\n".join(["", _COMPATIBILITY, *keys])
        yield ""


def _row(row: OptionRow) -> str:
    default = row.default if row.default in {"none", "required"} else f"`{row.default}`"
    notes = [row.doc, f"Takes {row.type}, such as `{row.example}`."]
    if row.only:
        notes.append(f"Only for {' and '.join(f'`{where}`' for where in row.only)}.")
    if row.since:
        notes.append(f"Since Spark {row.since}.")
    if row.env:
        notes.append(f"Else from `${row.env}`.")
    if row.secret:
        notes.append("Never shown.")
    also = ", ".join(f"`{alias}`" for alias in row.aliases)
    return (
        "| " + " | ".join(_escape(cell) for cell in (f"`{row.name}`", default, " ".join(notes), also)) + " |"
    )


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(markdown_reference())
