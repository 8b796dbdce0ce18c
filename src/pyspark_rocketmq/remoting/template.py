"""Requests that differ in few numbers: what they have in common is encoded once.

A pull is small and there is one for every few dozen messages, so that encoding its header field by field
would cost as much as decoding its answer.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any, Final

from pyspark_rocketmq.remoting.command import Command, Serializer, encode_header
from pyspark_rocketmq.remoting.header import RequestHeader
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace

__all__ = ["RequestTemplate"]

_PREFIX: Final = struct.Struct(">II")


class RequestTemplate:
    """Requests without a body, in JSON.

    Parameters
    ----------
    request : RequestHeader
        One of the requests.
    *varying : str
        The names of the fields that differ, in the order of their declaration: integers, or texts in which
        JSON escapes nothing.
    namespace : Namespace
        Of the frames; `request` is as the user named things.

    Raises
    ------
    LocalProtocolError
        The request does not encode.
    """

    __slots__ = ("_format", "_has_texts", "_request", "_varying")

    def __init__(self, request: RequestHeader, *varying: str, namespace: Namespace = NO_NAMESPACE) -> None:
        self._request = request
        self._varying = varying
        wire = {field.name: field.wire for field in request.FIELDS}
        kinds = {field.name: field.type for field in request.FIELDS}
        fields = {**request.fields(namespace), **{wire[name]: "0" for name in varying}}
        # Quotes are escaped within values: what is looked for below can only be the member itself.
        text = encode_header(Command(code=request.CODE, opaque=0, fields=fields), Serializer.JSON)
        text = text.replace(b"%", b"%%").replace(b',"opaque":0,', b',"opaque":%d,')
        for name in varying:
            form = "%s" if kinds[name] is str else "%d"
            text = text.replace(f'"{wire[name]}":"0"'.encode(), f'"{wire[name]}":"{form}"'.encode())
        self._format = text
        self._has_texts = any(kinds[name] is str for name in varying)

    def frame(self, opaque: int, *values: int | str) -> bytes:
        """Return the frame of the request with these values."""
        if self._has_texts:
            header = self._format % (*(v.encode() if isinstance(v, str) else v for v in values), opaque)
        else:
            header = self._format % (*values, opaque)
        return _PREFIX.pack(4 + len(header), len(header)) + header

    def request(self, *values: int | str) -> RequestHeader:
        """Return the request with these values, to be encoded in another way."""
        changed: dict[str, Any] = dict(zip(self._varying, values, strict=True))
        return dataclasses.replace(self._request, **changed)  # type: ignore[type-var]
