"""Requests that differ in few values: what they have in common is encoded once.

A pull is small and there is one for every few dozen messages, and a message that is sent alone is a whole
request: encoding their headers field by field would cost as much as everything else about them.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from json.encoder import encode_basestring as _quote
from typing import Any, Final, NamedTuple, TypeAlias

from pyspark_rocketmq.errors import LocalProtocolError
from pyspark_rocketmq.remoting.command import Command, Serializer, encode_header
from pyspark_rocketmq.remoting.frame import frame_head
from pyspark_rocketmq.remoting.header import RequestHeader
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace

__all__ = ["Request", "RequestTemplate", "TemplatedRequest"]

_PLACE: Final = "0"


class RequestTemplate:
    """Requests in JSON.

    Parameters
    ----------
    request : RequestHeader
        One of the requests.
    *varying : str
        The names of the fields that differ, in the order of their declaration: integers and texts.
    namespace : Namespace
        Of the frames; `request` is as the user named things. Varying fields do not get it.

    Raises
    ------
    LocalProtocolError
        The request does not encode.
    """

    __slots__ = ("_code", "_format", "_has_texts", "_request", "_varying")

    def __init__(self, request: RequestHeader, *varying: str, namespace: Namespace = NO_NAMESPACE) -> None:
        self._request = request
        self._varying = varying
        self._code = int(request.CODE)
        wire = {field.name: field.wire for field in request.FIELDS}
        kinds = {field.name: field.type for field in request.FIELDS}
        fields = {**request.fields(namespace), **{wire[name]: _PLACE for name in varying}}
        # Quotes are escaped within values: what is looked for below can only be the member itself.
        text = encode_header(Command(code=request.CODE, opaque=0, fields=fields), Serializer.JSON)
        text = text.replace(b"%", b"%%").replace(b',"opaque":0,', b',"opaque":%d,')
        for name in varying:
            form = "%s" if kinds[name] is str else '"%d"'
            text = text.replace(f'"{wire[name]}":"{_PLACE}"'.encode(), f'"{wire[name]}":{form}'.encode())
        self._format = text
        self._has_texts = any(kinds[name] is str for name in varying)

    def frame_head(self, opaque: int, values: Sequence[int | str], body_bytes: int = 0) -> bytes:
        """Return what the frame of the request with these values has before its body.

        Raises
        ------
        LocalProtocolError
            A value does not encode, or the frame is larger than its receiver takes.
        """
        try:
            if self._has_texts:
                header = self._format % (*map(_encode, values), opaque)
            else:
                header = self._format % (*values, opaque)
        except UnicodeEncodeError:  # without its cause, which would carry the whole value
            raise LocalProtocolError("the header has text without a UTF-8 form", code=self._code) from None
        except TypeError as error:
            raise LocalProtocolError(
                "a header has a value of another type than declared", header=type(self._request).__name__
            ) from error
        return frame_head(header, body_bytes, code=self._code)

    def request(self, values: Sequence[int | str]) -> RequestHeader:
        """Return the request with these values, to be encoded in another way."""
        changed: dict[str, Any] = dict(zip(self._varying, values, strict=True))
        return dataclasses.replace(self._request, **changed)  # type: ignore[type-var]


def _encode(value: int | str) -> int | bytes:
    """Return a value as it is formatted: a text as in JSON, and an integer, never one that was rounded."""
    return _quote(value).encode() if isinstance(value, str) else operator.index(value)


class TemplatedRequest(NamedTuple):
    """A request as a template and the values that it does not share with the others."""

    template: RequestTemplate
    values: tuple[int | str, ...]


Request: TypeAlias = RequestHeader | TemplatedRequest
"""What a connection sends."""
