"""The schema of a topic's bodies, with RocketMQ Streams' names: ``SchemaConfig(SchemaType.JSON, Data)``."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_rocketmq.errors import PlanError

__all__ = ["SchemaConfig", "SchemaType"]

_TYPES: Final[dict[Any, DataType]] = {
    str: StringType(),
    int: LongType(),
    float: DoubleType(),
    bool: BooleanType(),
}


class SchemaType(enum.Enum):
    """The format of a body. To read Avro, use ``from_(DataFrame)`` with Spark's ``from_avro``."""

    STRING = "string"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class SchemaConfig:
    """The schema of a topic's bodies.

    Parameters
    ----------
    kind : SchemaType or Callable
        A format, or a function of a body's bytes that returns the record.
    target : type, str or StructType, optional
        The types of the JSON fields: a dataclass of texts, numbers and booleans, or a Spark schema.
    """

    kind: SchemaType | Callable[[bytes], Any]
    target: type | str | StructType | None = None

    def __post_init__(self) -> None:
        """Validate the configuration.

        Raises
        ------
        PlanError
            ``kind`` is not a format, or ``target`` is not a schema.
        """
        if not isinstance(self.kind, SchemaType) and not callable(self.kind):
            raise PlanError(f"SchemaConfig takes a SchemaType or a function of bytes, not {self.kind!r}")
        if self.target is not None and self.kind is not SchemaType.JSON:
            raise PlanError("only SchemaType.JSON takes a target")
        self.schema()

    @property
    def decode(self) -> Callable[[str], Any] | None:
        """The function from a body's text to a record."""
        return None if isinstance(self.kind, SchemaType) else _OfText(self.kind)

    def schema(self) -> str | StructType | None:
        """Return the types of the fields, if given."""
        if self.target is None or isinstance(self.target, str | StructType):
            return self.target
        if not is_dataclass(self.target):
            raise PlanError(
                f"the fields of {self.target.__name__} are not known: make it a dataclass, or pass a "
                "Spark schema"
            )
        hints = typing.get_type_hints(self.target)
        return StructType(
            [StructField(one.name, _type(one.name, hints[one.name])) for one in fields(self.target)]
        )


class _OfText:
    """Convert a function of a body's bytes to one of its text."""

    def __init__(self, function: Callable[[bytes], Any]) -> None:
        self._function = function

    def __call__(self, text: str) -> Any:
        return self._function(text.encode())


def _type(name: str, hint: Any) -> DataType:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint, *more) = [part for part in typing.get_args(hint) if part is not types.NoneType]
        hint = None if more else hint
    if hint not in _TYPES:
        raise PlanError(
            f"the field {name!r} must be a str, int, float or bool; other types need a Spark schema"
        )
    return _TYPES[hint]
