"""The Avro schema that Flink derives from a table's columns.

# Facts (Flink 1.20 and 2.0, AvroSchemaConverter.convertToSchema): the record is
``org.apache.flink.avro.generated.record``, records in it are ``record_<field>``; a nullable type is a union
with null first; TIMESTAMP(3) is timestamp-millis.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from sqlglot import exp

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark.body_formats import BodyColumn

__all__ = ["derive_avro_schema"]

_RECORD: Final = "org.apache.flink.avro.generated.record"
_TYPES: Final[dict[exp.DType, Any]] = {
    exp.DType.BOOLEAN: "boolean",
    exp.DType.TINYINT: "int",
    exp.DType.SMALLINT: "int",
    exp.DType.INT: "int",
    exp.DType.BIGINT: "long",
    exp.DType.FLOAT: "float",
    exp.DType.DOUBLE: "double",
    exp.DType.TEXT: "string",
    exp.DType.VARCHAR: "string",
    exp.DType.CHAR: "string",
    exp.DType.BINARY: "bytes",
    exp.DType.VARBINARY: "bytes",
    exp.DType.DATE: {"type": "int", "logicalType": "date"},
    exp.DType.TIMESTAMP: {"type": "long", "logicalType": "timestamp-millis"},
    exp.DType.TIMESTAMPTZ: {"type": "long", "logicalType": "timestamp-millis"},
    exp.DType.TIMESTAMPNTZ: {"type": "long", "logicalType": "timestamp-millis"},
}


def derive_avro_schema(columns: Sequence[BodyColumn]) -> str:
    """Return the schema of a record of these columns, as JSON.

    Raises
    ------
    OptionError
        A type has no counterpart in Avro.
    """
    fields = [
        _field(column.name, exp.DataType.build(column.type, dialect="spark"), _RECORD, column.nullable)
        for column in columns
    ]
    return json.dumps({"type": "record", "name": _RECORD, "fields": fields})


def _field(name: str, kind: exp.DataType, record: str, nullable: bool) -> dict[str, Any]:
    found = _schema(kind, f"{record}_{name}")
    return (
        {"name": name, "type": ["null", found], "default": None}
        if nullable
        else {"name": name, "type": found}
    )


def _schema(kind: exp.DataType, record: str) -> Any:
    parts = kind.expressions
    match kind.this:
        case exp.DType.DECIMAL:
            precision, scale = [*(int(part.name) for part in parts), 0, 0][:2] if parts else (10, 0)
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case exp.DType.ARRAY:
            return {"type": "array", "items": ["null", _schema(parts[0], record)]}
        case exp.DType.MAP:
            if parts[0].this not in {exp.DType.TEXT, exp.DType.VARCHAR}:
                raise OptionError(
                    f"Avro's maps have keys of type STRING, not {parts[0].sql()}", option="format"
                )
            return {"type": "map", "values": ["null", _schema(parts[1], record)]}
        case exp.DType.STRUCT:
            fields = [_field(part.name, part.args["kind"], record, True) for part in parts]
            return {"type": "record", "name": record, "fields": fields}
        case simple if simple in _TYPES:
            return _TYPES[simple]
    raise OptionError(f"type {kind.sql(dialect='spark')} has no counterpart in Avro", option="format")
