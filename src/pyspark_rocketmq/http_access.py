"""Who may ask the HTTP servers of the command line: this machine, or whoever has the token."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets

from pyspark_rocketmq.errors import OptionError

__all__ = ["choose_token", "has_bearer", "is_loopback", "is_token"]


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def choose_token(given: str | None, host: str) -> str | None:
    """Return the token that requests must carry; None if requests of this machine need none.

    Parameters
    ----------
    given : str, optional
        A user's token. Without one, a token is generated if other machines can reach ``host``.
    host : str

    Raises
    ------
    OptionError
        The token is empty, so that everybody would have it, or does not fit into a header.
    """
    if given is None:
        return None if is_loopback(host) else secrets.token_urlsafe(24)
    if not given.strip():
        raise OptionError("the token is empty: give another, or none")
    if not re.fullmatch("[!-~]+", given):
        raise OptionError("the token has a character that a header cannot carry: use ASCII without spaces")
    return given


def is_token(given: str, token: str) -> bool:
    """Compare in a time that says nothing about the token."""
    return hmac.compare_digest(given.encode(), token.encode())


def has_bearer(authorization: str, token: str) -> bool:
    """Whether an ``Authorization`` header carries the token."""
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and is_token(given, token)
