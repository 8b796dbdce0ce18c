"""Signing requests for access control.

# Facts
#
# ``AclClientRPCHook``, ``AclUtils``, ``AclSigner`` (4.9 and 5.4, the client's side is identical).
#
# * The fields get AccessKey (and SecurityToken). The content is the values of all fields, sorted by
#   field name, without separators, then the raw body. Signature is the standard Base64 of its
#   HMAC-SHA1 under the secret key.
# * Fields added after signing break the signature. ``_UNIQUE_KEY_QUERY`` is signed by 5.x only: not used.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_rocketmq.errors import LocalProtocolError
from pyspark_rocketmq.remoting.command import Buffer

__all__ = ["Credentials", "sign"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """An account of the broker. Its text form shows no secret; a pickle carries it to Spark's tasks.

    Parameters
    ----------
    access_key : str
        The user's name (5.x) or access key (4.x).
    secret_key : str
    security_token : str, optional
        Of temporary accounts.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def sign(fields: Mapping[str, str], body: Buffer, credentials: Credentials) -> dict[str, str]:
    """Return the fields with AccessKey, SecurityToken and Signature added.

    Raises
    ------
    LocalProtocolError
        A value has no UTF-8 form.
    """
    signed = {name: value for name, value in fields.items() if name != "Signature"}
    signed["AccessKey"] = credentials.access_key
    if credentials.security_token is not None:
        signed["SecurityToken"] = credentials.security_token
    # Field names are ASCII, so code point order is Java's string order.
    values = _utf8("".join([signed[name] for name in sorted(signed)]))
    key = _utf8(credentials.secret_key)
    if values is None or key is None:
        raise LocalProtocolError("a signed value has no UTF-8 form")
    digest = hmac.digest(key, b"".join((values, body)), "sha1")
    signed["Signature"] = base64.b64encode(digest).decode("ascii")
    return signed


def _utf8(text: str) -> bytes | None:
    """Encode; None if that is impossible: the error would carry the text, the secret key perhaps."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None
