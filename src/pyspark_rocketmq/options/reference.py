"""The reference of all options as Markdown; run as a module it prints it."""

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

Generated from the declarations that the parser reads (`make docs-options`); `pyspark-rocketmq options` prints
the same. Names compare without regard to case. A misspelt option is an error that names the nearest one; a
value that does not parse says what is expected.
"""
_SECTIONS: Final[tuple[tuple[str, type[Options], str], ...]] = (
    ("Connections", ClientOptions, "Of every API: reading, writing, DStreams, the listener."),
    ("Reading", SourceOptions, '`spark.read.format("rocketmq")` and `spark.readStream.format("rocketmq")`.'),
    ("Writing", SinkOptions, '`df.write.format("rocketmq")` and `df.writeStream.format("rocketmq")`.'),
    (
        "DStreams",
        DirectOptions,
        "`RocketMQUtils` and its strategies, beside those of reading that they take.",
    ),
    (
        "Receivers",
        ReceiverOptions,
        "Of `createInputDStream` and the like, beside those of reading that they take.",
    ),
    ("SQL tables", TableOptions, "`CREATE TABLE … WITH (…)`, beside those of reading and of writing."),
    ("SQL jobs", JobOptions, "`SET`, beside Spark's own settings (`spark.…`)."),
)
_TABLE: Final = "| option | default | meaning | also |\n|---|---|---|---|"
_COMPATIBILITY: Final = (
    "Accepted with a warning, so that options of other connectors can stay, and without effect:\n"
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
    if row.env:
        notes.append(f"Else from `${row.env}`.")
    if row.secret:
        notes.append("Never shown.")
    also = ", ".join(f"`{alias}`" for alias in row.aliases)
    return (
        "| " + " | ".join(_escaped(cell) for cell in (f"`{row.name}`", default, " ".join(notes), also)) + " |"
    )


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(markdown_reference())
