"""A remoting command and its header in both serializations.

# Facts
#
# ``RemotingCommand``, ``RocketMQSerializable`` (5.4.0; 4.9 reads and writes the same bytes).
#
# * JSON: an object of code, flag, language, opaque, version, remark and extFields (string to
#   string). ``remark`` and ``extFields`` are absent when null. Servers accept numbers as values of
#   extFields, and strings for code, opaque and flag; so do we.
# * ROCKETMQ, big-endian: code int16, language int8, version int16, opaque int32, flag int32, then
#   remark (int32 length, UTF-8; 0 is null) and ext fields (int32 length of all, then entries of
#   int16 length + key, int32 length + value). Codes above 32767 do not fit. An empty value reads as
#   null there, and a signature is then checked over the word "null": empty values are not sent.
# * A 5.x server answers in its own serialization, whatever the request's: decode by the frame's
#   type byte, never by what was sent.
# * ``opaque`` is chosen by the requester and echoed. Requests that the server starts use its own
#   counter: match answers by ``is_response`` first.
"""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring as _quote
from typing import Final

from pyspark_rocketmq.errors import LocalProtocolError, RemoteProtocolError
from pyspark_rocketmq.remoting.codes import LanguageCode

__all__ = [
    "FLAG_ONE_WAY",
    "FLAG_RESPONSE",
    "PROTOCOL_VERSION",
    "Buffer",
    "Command",
    "Serializer",
    "decode_header",
    "encode_header",
]

Buffer = bytes | bytearray | memoryview

FLAG_RESPONSE: Final = 1
FLAG_ONE_WAY: Final = 2

PROTOCOL_VERSION: Final = 493
"""``MQVersion.V5_4_0``: from 401 on name servers send standard JSON for routes."""


class Serializer(enum.IntEnum):
    """How a header is written; the number is the frame's type byte (``SerializeType``)."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(frozen=True, slots=True)
class Command:
    """The header of a request or a response (``RemotingCommand``), apart from its body.

    Parameters
    ----------
    code : int
        A ``RequestCode`` or ``ResponseCode``, or a number that neither lists.
    opaque : int
        Signed 32-bit; what an answer has in common with its request.
    flag : int, default 0
        ``FLAG_RESPONSE`` and ``FLAG_ONE_WAY``.
    fields : Mapping[str, str], default empty
        The typed header's fields as text (``extFields``).
    remark : str, optional
        What the server says to its answer; empty and absent are the same.
    language : LanguageCode, default PYTHON
    version : int, default 493
        The peer's ``MQVersion``.
    """

    code: int
    opaque: int
    flag: int = 0
    fields: Mapping[str, str] = field(default_factory=dict)
    remark: str | None = None
    language: LanguageCode = LanguageCode.PYTHON
    version: int = PROTOCOL_VERSION

    @property
    def is_response(self) -> bool:
        """Whether this is an answer to a request of ours."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_one_way(self) -> bool:
        """Whether the request will never be answered."""
        return self.flag & FLAG_ONE_WAY != 0


def encode_header(command: Command, serializer: Serializer) -> bytes:
    """Write a header.

    Raises
    ------
    LocalProtocolError
        A value does not fit the serialization (a code above 32767 in binary form, text that has no
        UTF-8 form).
    """
    try:
        if serializer is Serializer.JSON:
            return _encode_json(command)
        return _encode_binary(command)
    except struct.error as error:
        raise LocalProtocolError(
            "a value of the header is out of the binary serialization's range: send it as JSON",
            code=command.code,
            opaque=command.opaque,
        ) from error
    except UnicodeEncodeError:
        # Without its cause, which would carry the whole header, a security token perhaps.
        raise LocalProtocolError("the header has text without a UTF-8 form", code=command.code) from None


def decode_header(view: Buffer, serializer: Serializer) -> Command:
    """Read a header; ``view`` holds exactly its bytes.

    Raises
    ------
    RemoteProtocolError
        The bytes are not a header in this serialization.
    """
    try:
        if serializer is Serializer.JSON:
            return _decode_json(view)
        return _decode_binary(bytes(view))
    except (struct.error, ValueError, RecursionError) as error:
        raise RemoteProtocolError(
            "the peer sent a header that does not decode", serializer=serializer.name, size=len(view)
        ) from error


# --- JSON -----------------------------------------------------------------------------------

_read_json = json.JSONDecoder().raw_decode
_LANGUAGES: Final[dict[str, LanguageCode]] = {code.name: code for code in LanguageCode}
_PYTHON: Final = LanguageCode.PYTHON


def _encode_json(command: Command) -> bytes:
    # Written by hand: pulls come here, and a general encoder takes twice as long.
    fields = ",".join([f"{_quote(name)}:{_quote(value)}" for name, value in command.fields.items()])
    remark = f',"remark":{_quote(command.remark)}' if command.remark else ""
    language = "PYTHON" if command.language is _PYTHON else command.language.name
    return (
        f'{{"code":{command.code:d},"extFields":{{{fields}}},"flag":{command.flag:d},'
        f'"language":"{language}","opaque":{command.opaque:d}{remark},'
        f'"serializeTypeCurrentRPC":"JSON","version":{command.version:d}}}'
    ).encode()


def _decode_json(view: Buffer) -> Command:
    text = str(view, "utf-8").strip()
    document, end = _read_json(text)
    if end != len(text):
        raise ValueError("something follows the JSON")
    if type(document) is not dict:
        raise ValueError("not an object")
    get = document.get
    fields = get("extFields") or {}
    if type(fields) is not dict:
        raise ValueError("extFields is not an object")
    for value in fields.values():
        if type(value) is not str:
            fields = {name: _as_text(value) for name, value in fields.items() if value is not None}
            break
    remark = get("remark")
    if remark is not None and type(remark) is not str:
        raise ValueError("remark is not a string")
    return Command(
        _as_int32(get("code")),
        _as_int32(get("opaque")),
        _as_int32(get("flag", 0)),
        fields,
        remark or None,
        _LANGUAGES.get(str(get("language")), LanguageCode.OTHER),
        _as_int32(get("version", 0)),
    )


def _as_int32(value: object) -> int:
    if type(value) is str:
        value = int(value)
    if type(value) is not int or not -0x80000000 <= value <= 0x7FFFFFFF:
        raise ValueError("not a 32-bit integer")
    return value


def _as_text(value: object) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            raise ValueError("an ext field is not a scalar")


# --- ROCKETMQ -------------------------------------------------------------------------------

_FIXED: Final = struct.Struct(">hbhiii")
_SHORT: Final = struct.Struct(">H")
_INT: Final = struct.Struct(">i")
_LANGUAGE_BYTES: Final[dict[int, LanguageCode]] = {int(code): code for code in LanguageCode}


def _encode_binary(command: Command) -> bytes:
    remark = (command.remark or "").encode()
    parts = [
        _FIXED.pack(
            command.code, command.language, command.version, command.opaque, command.flag, len(remark)
        ),
        remark,
        b"",
    ]
    size = 0
    for name, value in command.fields.items():
        if not value:
            continue
        key, text = name.encode(), value.encode()
        # Java reads the key's length as a signed short.
        if len(key) > 0x7FFF:
            raise struct.error("field name too long")
        parts += (_SHORT.pack(len(key)), key, _INT.pack(len(text)), text)
        size += 6 + len(key) + len(text)
    parts[2] = _INT.pack(size)
    return b"".join(parts)


def _decode_binary(data: bytes) -> Command:
    code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(data)
    remark, at = _take(data, _FIXED.size, remark_size)
    (size,) = _INT.unpack_from(data, at)
    at += 4
    if size != len(data) - at:
        raise ValueError("ext fields do not end where the header ends")
    fields: dict[str, str] = {}
    while at < len(data):
        (key_size,) = _SHORT.unpack_from(data, at)
        key, at = _take(data, at + 2, key_size)
        (value_size,) = _INT.unpack_from(data, at)
        fields[key], at = _take(data, at + 4, value_size)
    return Command(
        code, opaque, flag, fields, remark or None, _LANGUAGE_BYTES.get(language, LanguageCode.OTHER), version
    )


def _take(data: bytes, at: int, size: int) -> tuple[str, int]:
    """Read ``size`` bytes of UTF-8; a slice of what has arrived, so an announced length allocates nothing."""
    end = at + size
    if not at <= end <= len(data):
        raise ValueError("a length points beyond the header")
    return data[at:end].decode(), end
