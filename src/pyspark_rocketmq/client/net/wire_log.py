"""Log one line per frame, for debugging a connection. Bodies and secrets are not logged."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

from pyspark_rocketmq.client.clock import Clock
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.frame import decode_frame, frame_length

__all__ = ["WireLog"]

_HIDDEN: Final = frozenset({"AccessKey", "SecurityToken", "Signature"})
_USERS_OWN: Final = frozenset({"properties", "i"})
"""Properties of a message, by their long name and that of the short send request."""

_REMEMBERED: Final = 4_096
_LONGEST: Final = 200


class WireLog:
    """Writes a line for each frame of one connection.

    A line has the time, the peer, the direction, what is asked for or answered, the header's fields and the
    size of the body. Bodies and the properties of messages are logged by their size only. Access key, token
    and signature are omitted, also where a server's remark repeats them.

    Parameters
    ----------
    addr : str
    clock : Clock
    credentials : Credentials, optional
        Whose texts must not appear.
    stream : TextIO, optional
        The process's standard error when absent.
    """

    def __init__(
        self, addr: str, clock: Clock, credentials: Credentials | None = None, stream: TextIO | None = None
    ) -> None:
        self._addr = addr
        self._clock = clock
        self._stream = stream
        given = (
            (credentials.access_key, credentials.secret_key, credentials.security_token)
            if credentials
            else ()
        )
        self._secrets = sorted((text for text in given if text), key=len, reverse=True)
        self._asked: dict[int, tuple[str, float]] = {}

    def log_sent(self, frames: bytes) -> None:
        """Log encoded requests, or answers to the server's requests."""
        start, view = 0, memoryview(frames)
        while start < len(frames):
            length = frame_length(view, start, len(frames))
            assert length is not None
            frame = decode_frame(view[start : start + length])
            start += length
            name = _name(RequestCode, frame.command.code)
            if len(self._asked) >= _REMEMBERED:  # of requests that were abandoned
                self._asked.clear()
            self._asked[frame.command.opaque] = (name, self._clock.monotonic())
            self._write("→", name, frame.command, len(frame.body))

    def log_received(self, command: Command, body_bytes: int) -> None:
        """Log a received frame."""
        if not command.is_response:
            self._write("←", _name(RequestCode, command.code), command, body_bytes)
            return
        what = _name(ResponseCode, command.code)
        asked = self._asked.pop(command.opaque, None)
        if asked is not None:
            name, since = asked
            what += f" to {name} after {(self._clock.monotonic() - since) * 1000:.1f} ms"
        self._write("←", what, command, body_bytes)

    def _write(self, direction: Literal["→", "←"], what: str, command: Command, body_bytes: int) -> None:
        moment = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).astimezone()
        parts = [f"{moment.isoformat(timespec='milliseconds')} {self._addr} {direction} #{command.opaque}"]
        parts += [what, *_fields(command.fields)]
        if command.remark:
            parts.append(f"remark={self._hide(command.remark)[:_LONGEST]!r}")
        if body_bytes:
            parts.append(f"body={body_bytes:,} bytes")
        print(self._hide(" ".join(parts)), file=self._stream or sys.stderr, flush=True)

    def _hide(self, text: str) -> str:
        """Return a text without the secrets: before it is cut or quoted, which changes what is looked for."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _fields(fields: Mapping[str, str]) -> list[str]:
    return [
        f"{name}=({len(value):,} characters)" if name in _USERS_OWN else f"{name}={value[:_LONGEST]}"
        for name, value in fields.items()
        if name not in _HIDDEN
    ]


def _name(codes: type[RequestCode | ResponseCode], code: int) -> str:
    try:
        return codes(code).name
    except ValueError:
        return f"{codes.__name__} {code}"
