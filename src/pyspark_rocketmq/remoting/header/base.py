"""How a header is declared.

A header is a class of typed fields below ``RequestHeader`` or ``ResponseHeader``, decorated with
``header``. Text on the wire, parsing and documentation all come from that declaration: no header has
own code. The field table is built once a class, because pulls write and read headers often.

# Facts
#
# ``CommandCustomHeader``, ``RemotingCommand.makeCustomHeaderToNet`` (5.4.0). Every field travels as
# text in ``extFields`` under the Java field's name; numbers in decimal, booleans as true and false;
# null fields are left out.
"""

from __future__ import annotations

import dataclasses
import operator
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple, Self, SupportsIndex, TypeVar

from pyspark_rocketmq.errors import LocalProtocolError, RemoteProtocolError
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace

__all__ = ["Header", "HeaderField", "RequestHeader", "ResponseHeader", "header", "wire"]

_WIRE: Final = "wire"
_ALSO: Final = "also"

_RESOURCES: Final = frozenset(
    {"topic", "origin_topic", "consumer_group", "producer_group", "group", "group_name"}
)
"""Fields that name a topic or a group, in every header: they live in the client's namespace."""


class HeaderField(NamedTuple):
    """One declared field: its Python name, its name on the wire, its type, and whether it is required.

    ``also`` is a second name under which it is sent.
    """

    name: str
    wire: str
    type: type[str] | type[int] | type[bool]
    required: bool
    also: str | None = None


class Header:
    """What requests and responses have in common: text from fields and back."""

    __slots__ = ()

    FIELDS: ClassVar[tuple[HeaderField, ...]] = ()
    _read: ClassVar[Callable[[Any], tuple[Any, ...]]]
    _writers: ClassVar[tuple[tuple[str, Callable[[Any], str], bool], ...]] = ()
    _parsers: ClassVar[tuple[tuple[str, str, Callable[[str], Any], bool], ...]] = ()
    _resources: ClassVar[tuple[str, ...]] = ()
    _copies: ClassVar[tuple[tuple[str, str], ...]] = ()

    @classmethod
    def declare(cls, table: tuple[HeaderField, ...]) -> None:
        """Take over the fields that the decorator ``header`` found."""
        cls.FIELDS = table
        cls._read = _reader([field.name for field in table])
        cls._writers = tuple((field.wire, _WRITE[field.type], field.required) for field in table)
        cls._parsers = tuple((field.name, field.wire, _PARSE[field.type], field.required) for field in table)
        cls._copies = tuple((field.also, field.wire) for field in table if field.also is not None)
        cls._resources = tuple(field.wire for field in table if field.name in _RESOURCES)

    def fields(self, namespace: Namespace = NO_NAMESPACE) -> dict[str, str]:
        """Return the fields as they travel, without those that are None; topics and groups in ``namespace``.

        Raises
        ------
        LocalProtocolError
            A value is not of its field's declared type, or None where one is required.
        """
        cls = type(self)
        try:
            fields = {
                name: write(value)
                for (name, write, required), value in zip(cls._writers, cls._read(self), strict=True)
                if value is not None or required
            }
        except (TypeError, KeyError):
            values = zip(cls.FIELDS, cls._read(self), strict=True)
            given = [(field, value) for field, value in values if value is not None or field.required]
            fields = {field.wire: _write(cls.__name__, field, value) for field, value in given}
        for also, name in cls._copies:
            fields[also] = fields[name]
        if namespace is not NO_NAMESPACE:
            fields |= {name: namespace.qualify(fields[name]) for name in cls._resources if name in fields}
        return fields

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> Self:
        """Build the header from the fields of a command; unknown fields are ignored.

        Raises
        ------
        RemoteProtocolError
            A required field is missing, or one is not of its declared type.
        """
        values: dict[str, Any] = {}
        for name, wire_name, parse, required in cls._parsers:
            text = fields.get(wire_name)
            if text is not None:
                try:
                    values[name] = parse(text)
                except ValueError as error:
                    raise RemoteProtocolError(
                        "the peer sent a header field of another type",
                        header=cls.__name__,
                        field=wire_name,
                        value=text[:80],
                    ) from error
            elif required:
                raise RemoteProtocolError(
                    "the peer left out a required header field", header=cls.__name__, field=wire_name
                )
        return cls(**values)


class RequestHeader(Header):
    """The typed fields of one kind of request; ``CODE`` says which."""

    __slots__ = ()

    CODE: ClassVar[RequestCode]


class ResponseHeader(Header):
    """The typed fields of one kind of answer."""

    __slots__ = ()


def wire(name: str, *, default: Any = dataclasses.MISSING, also: str | None = None) -> Any:
    """Declare a field whose name on the wire is not the camelCase of its Python name.

    Parameters
    ----------
    name : str
    default
        Required without one.
    also : str, optional
        A second name under which a required field is sent; it is read under the first.
    """
    return dataclasses.field(default=default, metadata={_WIRE: name, _ALSO: also})


_H = TypeVar("_H", bound=Header)


@typing.dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(wire,))
def header(cls: type[_H]) -> type[_H]:
    """Make a frozen, slotted, keyword-only dataclass of a header and build its field table."""
    made = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)
    made.declare(
        tuple(
            HeaderField(
                field.name,
                field.metadata.get(_WIRE) or _camel(field.name),
                _scalar(field.type),
                field.default is dataclasses.MISSING,
                field.metadata.get(_ALSO),
            )
            for field in dataclasses.fields(typing.cast("Any", made))
        )
    )
    return made


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _scalar(hint: object) -> type[str] | type[int] | type[bool]:
    """Return the type that a hint such as ``int | None`` stands for; hints are texts, never evaluated."""
    kind = _SCALARS.get(str(hint).removesuffix(" | None"))
    if kind is None:
        raise TypeError(f"a header field cannot be {hint}")
    return kind


def _reader(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    match names:
        case []:
            return staticmethod(lambda _: ())
        case [name]:
            get = operator.attrgetter(name)
            return staticmethod(lambda self: (get(self),))
        case _:
            return staticmethod(operator.attrgetter(*names))


def _parse_int(text: str) -> int:
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError("not a 64-bit integer")
    return value


def _parse_bool(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError("not a boolean")


_SCALARS: Final[dict[str, type[str] | type[int] | type[bool]]] = {"str": str, "int": int, "bool": bool}

# Slot functions of the exact type, so that a value of another type fails instead of becoming text.
_WRITE: Final[dict[type, Callable[[Any], str]]] = {
    str: str.__str__,
    int: int.__repr__,
    bool: {True: "true", False: "false"}.__getitem__,
}


def _write(header: str, field: HeaderField, value: object) -> str:
    """Write a value of another type than declared: a whole number of numpy is one, too."""
    try:
        same = operator.index(value) if field.type is int and isinstance(value, SupportsIndex) else value
        return _WRITE[field.type](same)
    except (TypeError, KeyError) as error:
        raise LocalProtocolError(
            f"a header has a value of another type than declared: {field.name} must be {_NAMES[field.type]}, "
            f"not {'None' if value is None else f'a {type(value).__name__}'}",
            header=header,
            **{field.name: value},
        ) from error


_NAMES: Final[dict[type, str]] = {str: "a text", int: "a whole number", bool: "true or false"}

_PARSE: Final[dict[type, Callable[[str], Any]]] = {str: str, int: _parse_int, bool: _parse_bool}
