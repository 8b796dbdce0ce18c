"""The fields of Avro's records."""

from __future__ import annotations

import json

from pyspark_rocketmq.errors import OptionError

__all__ = ["avro_fields"]


def avro_fields(schema: str) -> dict[str, bool]:
    """Return the fields of a record's schema, and whether each may be null."""
    try:
        record = json.loads(schema)
        types = {field["name"]: field["type"] for field in record["fields"]}
    except (ValueError, KeyError, TypeError) as error:
        raise OptionError("not the schema of an Avro record, in JSON", option="avroSchema") from error
    return {
        name: kind == "null" or (isinstance(kind, list) and "null" in kind) for name, kind in types.items()
    }
