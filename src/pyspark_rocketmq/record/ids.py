"""Hosts as a record holds them, and the ids of messages.

Facts: ``org.apache.rocketmq.common.message.MessageDecoder.createMessageId`` and
``MessageClientIDSetter`` of 5.4.0. Ids are upper-case hex.
"""

from __future__ import annotations

import ipaddress
import struct
from datetime import UTC, datetime
from functools import lru_cache

__all__ = ["create_unique_id", "encode_host", "format_host", "is_address_of", "offset_message_id"]

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_UNIQUE_TAIL = struct.Struct(">HIIH")


@lru_cache(maxsize=4096)
def encode_host(host: str) -> bytes:
    """Encode ``ip:port`` or ``[ipv6]:port`` as the 8 or 20 bytes of a record."""
    ip, _, port = host.rpartition(":")
    return ipaddress.ip_address(ip.strip("[]")).packed + _INT.pack(int(port))


@lru_cache(maxsize=4096)  # few hosts send, every message names two
def format_host(host: bytes) -> str:
    """Write the 8 or 20 bytes of a host as ``ip:port`` or ``[ipv6]:port``."""
    ip = ipaddress.ip_address(host[:-4])
    (port,) = _INT.unpack(host[-4:])
    return f"{ip}:{port}" if ip.version == 4 else f"[{ip}]:{port}"


def is_address_of(addr: str, host: bytes) -> bool:
    """Return whether an address of a route is that of a record's host.

    IPv6 addresses have several spellings. The name of a host is the address of none.
    """
    try:
        return encode_host(addr) == host
    except ValueError:
        return False


def offset_message_id(store_host: bytes, commit_log_offset: int) -> str:
    """Return the id that says where a message is stored (``offsetMsgId`` of the Java client).

    Parameters
    ----------
    store_host : bytes
        The 8 or 20 bytes of the record's store host.
    commit_log_offset : int
    """
    return (store_host + _LONG.pack(commit_log_offset)).hex().upper()


def create_unique_id(ip: bytes, pid: int, salt: int, now_ms: int, counter: int) -> str:
    """Return a client's message id in Java's layout, the value of ``UNIQ_KEY``.

    It holds the milliseconds since the month began, from which RocketMQ's tools tell where to
    search; unique as long as ``(ip, pid, salt)`` names one producer process and ``counter`` counts
    its messages (65,536 a millisecond).

    Parameters
    ----------
    ip : bytes
        4 or 16 bytes.
    pid, salt, counter : int
        The low 16, 32 and 16 bits are used.
    now_ms : int
        Milliseconds since the epoch.
    """
    month = datetime.fromtimestamp(now_ms // 1000, UTC).replace(day=1, hour=0, minute=0, second=0)
    elapsed_ms = now_ms - int(month.timestamp()) * 1000
    tail = struct.pack(">HIIH", pid & 0xFFFF, salt & 0xFFFFFFFF, elapsed_ms & 0xFFFFFFFF, counter & 0xFFFF)
    return (ip + tail).hex().upper()
