"""What the state of a query depends on, in a file of its checkpoint: a changed query is refused."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark.filesystem import file_errors, file_system, local_folder, write_durably

__all__ = ["describe_rows", "keeping_state_record"]

_FILE: Final = "rocketmq-state.json"
_FORM: Final = f"4, sqlglot {version('sqlglot')}"
"""Whose texts these are: those of another version of the parser may differ without a change."""


def describe_rows(rows: DataFrame) -> str:
    """Return the columns of rows that a Python worker keeps: its state has only their values, in order."""
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in rows.schema.fields)


@contextlib.contextmanager
def keeping_state_record(checkpoint: str, query: str, state: Sequence[str]) -> Iterator[None]:
    """Compare the state that a query would continue from with its own; record this when it has started.

    Only on local file systems. Spark compares the types of the state, not what they mean.

    Raises
    ------
    OptionError
        The state in the checkpoint is that of something else.
    RocketMQError
        The query has started, and the record cannot be written.
    """
    folder = local_folder(checkpoint)
    if folder is None or not state or is_remote():
        yield
        return
    file, now = folder / _FILE, json.dumps({"form": _FORM, "state": list(state)})
    before = file.read_text(encoding="utf-8") if file.exists() else now
    if before != now and any((folder / "offsets").glob("[0-9]*")):
        _compare(json.loads(before), state, query, checkpoint)
    yield
    if folder.is_dir():  # or it is on Hadoop's default file system
        with file_errors("the checkpoint cannot be written", file=file):
            write_durably(*file_system(file.as_posix()), lambda out: out.write(now.encode()))


def _compare(before: Mapping[str, Any], state: Sequence[str], query: str, checkpoint: str) -> None:
    if before["form"] != _FORM:
        return
    was, now = (" | ".join(each) for each in (before["state"], state))
    raise OptionError(
        f"the query {query} has changed: the state in its checkpoint is that of {was!r}, and would be taken "
        f"for that of {now!r}. SET 'queryName' = 'another-name' gives the changed query another checkpoint, "
        "without state, and it uses its start options",
        option="queryName",
        checkpoint=checkpoint,
    )
