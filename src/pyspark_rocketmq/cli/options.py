"""``pyspark-rocketmq options``: every option of the data source, as declared for the parser."""

from __future__ import annotations

import enum
from typing import Annotated, Final

import typer

from pyspark_rocketmq.cli.printing import AsJson, examples, print_json, print_table

__all__ = ["EXAMPLES", "options"]

EXAMPLES: Final = examples("options", "options --of write --json")


class _Side(enum.Enum):
    READ = "read"
    WRITE = "write"


def options(
    of: Annotated[_Side, typer.Option(help="Options for reading or for writing.")] = _Side.READ,
    json: AsJson = False,
) -> None:
    """List the options of `format("rocketmq")` with their defaults and aliases."""
    from pyspark_rocketmq.options import SinkOptions, SourceOptions, option_reference

    rows = option_reference(SourceOptions if of is _Side.READ else SinkOptions)
    if json:
        print_json(rows)
        return
    print_table(
        ("Option", "Default", "What", "Also"),
        [(row.name, row.default, row.doc, ", ".join(row.aliases)) for row in rows],
    )
