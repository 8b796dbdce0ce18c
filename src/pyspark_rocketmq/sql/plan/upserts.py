"""Rows that change into a topic: the last change of each key, or every change in a changelog's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_rocketmq.options import BodyFormat, OutputMode
from pyspark_rocketmq.spark.boundary import called_for_batches
from pyspark_rocketmq.spark.write.update_mode import message_writer
from pyspark_rocketmq.sql.declared_columns import writable_columns
from pyspark_rocketmq.sql.flink.connectors import ConnectorKind, ConnectorTarget
from pyspark_rocketmq.sql.flinksql.relations import CHANGE, Relation
from pyspark_rocketmq.sql.formats.changelogs import ROW_KEY, latest_changes
from pyspark_rocketmq.sql.plan.targets import MessagesTarget, Target, require_sink_topic
from pyspark_rocketmq.sql.statements import Insert
from pyspark_rocketmq.sql.tables import Table

__all__ = ["UpsertTarget", "changes_target", "keeps_key", "refuse_replaced", "require_key_of_updates"]

_WITHOUT_NULLS: Final = frozenset({BodyFormat.RAW, BodyFormat.KEY_VALUE})


def changes_target(target: Target, insert: Insert) -> Target:
    """Return the target for rows with the column `CHANGE`.

    Raises
    ------
    SqlError
        The target cannot update and delete rows.
    """
    match target:
        case MessagesTarget():
            _require_key(target.table, insert)
            return UpsertTarget(target.table)
        case ConnectorTarget() if target.table.kind is not ConnectorKind.FILESYSTEM:
            require_key_of_updates(target, insert)
            return target
    return insert.target.position.fail(
        f"{insert.target.text} only appends rows, and those of the query are updated and deleted: use a "
        "topic or a table of connector 'jdbc' with PRIMARY KEY (…) NOT ENFORCED, or SET "
        "'execution.runtime-mode' = 'batch' to write the rows that remain"
    )


def keeps_key(target: Target, insert: Insert, rows: Relation, columns: Sequence[str]) -> bool:
    """Whether a row that replaces another one has its key in the target; otherwise that one would stay.

    A format of changes has the rows that are replaced, too.
    """
    match target:
        case MessagesTarget() if target.table.options.changelog is not None:
            return False
        case MessagesTarget():
            keys = target.table.options.key_columns
            written = target.table.writable(insert.columns, insert.target.position)
        case ConnectorTarget() if target.table.kind is ConnectorKind.JDBC:
            declared = target.table.declared
            keys = tuple(name.text for name in declared.primary_key)
            written = writable_columns(declared, insert.columns, insert.target.position)
        case _:
            return True
    wanted = {key.lower() for key in keys}
    places = [at for at, column in enumerate(written) if column.name.key in wanted]
    if len(columns) != len(written):
        return True  # which is an error, that the target reports
    return all(columns[at].lower() in rows.fixed or f"#{at}" in rows.fixed for at in places)


def refuse_replaced(target: Target, insert: Insert) -> NoReturn:
    """Refuse to write rows that replace others where those cannot be taken back.

    Raises
    ------
    SqlError
    """
    why = "its key changes with the results of the query, and the rows with old keys would stay"
    if isinstance(target, MessagesTarget) and target.table.options.changelog is not None:
        why = f"format {target.table.options.changelog.value} has each replaced row"
    insert.target.position.fail(
        f"{insert.target.text} needs the rows that the query replaces: {why}. Leave SET 'outputMode' and "
        "windows of PROCTIME() out, or make its key of columns of GROUP BY or PARTITION BY"
    )


def require_key_of_updates(target: Target, insert: Insert) -> None:
    """Check that a database's table has the key by which rows that change are updated.

    Raises
    ------
    SqlError
    """
    if isinstance(target, ConnectorTarget) and target.table.kind is ConnectorKind.JDBC:
        declared = target.table.declared
        if not declared.primary_key:
            insert.target.position.fail(
                f"the rows for {declared.name.text} are updated: declare its PRIMARY KEY (…) NOT ENFORCED, a "
                "unique key of the table in the database"
            )


def _require_key(table: Table, insert: Insert) -> None:
    at = insert.target.position
    if table.options.changelog is not None:
        return
    if table.format is None or not table.options.key_columns:
        at.fail(
            f"the rows for {table.name} are updated and deleted: declare its PRIMARY KEY (…) NOT ENFORCED, "
            "or give it a format of changes, such as 'format' = 'debezium-json'"
        )
    if table.format.kind in _WITHOUT_NULLS:
        at.fail(f"format={table.format.kind.value} has no deleted rows: use json for {table.name}")


@dataclass(frozen=True, slots=True)
class UpsertTarget:
    """A topic with keys. A deleted row is a message with the keys only, and the property ``op=-D``."""

    table: Table

    def align(self, rows: DataFrame, insert: Insert) -> DataFrame:
        """Return the rows as messages, with their change."""
        insert.require_append()
        columns = self.table.writable(insert.columns, insert.target.position)
        given = [name for name in rows.columns if name != CHANGE]
        insert.require_columns(given, [column.name.text for column in columns])
        return self.table.messages(rows, columns)

    def write(self, rows: DataFrame) -> None:
        """Refuse: a batch has no changes, only the rows that remain."""
        raise NotImplementedError(self.table.name)

    def start(self, writer: DataStreamWriter, mode: OutputMode, checkpoint: str) -> StreamingQuery:
        """Send a stream."""
        del mode  # each row is a change
        options: Mapping[str, str] = self.table.sink_options()
        require_sink_topic(options, f"table {self.table.name}")
        send = message_writer(checkpoint, options)
        every = self.table.options.changelog is not None

        def upsert(batch: DataFrame, number: int) -> None:
            changed = batch if every else latest_changes(batch, [ROW_KEY])
            send(changed.drop(CHANGE, ROW_KEY), number)

        return writer.foreachBatch(called_for_batches(upsert)).start()
