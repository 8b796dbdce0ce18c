"""The positions of a stored message's fields, and the meaning of its flags.

Facts: ``org.apache.rocketmq.common.message.MessageDecoder``, ``MessageVersion`` and
``common.sysflag.MessageSysFlag`` of 4.9.7 and 5.4.0. All integers are big-endian. A record is

==========================  ======  =================================================
field                       bytes   note
==========================  ======  =================================================
size                        4       of the whole record
magic                       4       ``MAGIC_V1`` or ``MAGIC_V2``
body CRC                    4       CRC-32 & 0x7FFFFFFF of the stored body
queue id                    4       physical id for static topics
flag                        4       the user's
queue offset                8
commit-log offset           8
sysFlag                     4       ``MessageFlag``
born timestamp              8       ms, client clock
born host                   8 | 20  IP and an int port
store timestamp             8       ms, broker clock
store host                  8 | 20  IP and an int port
reconsume times             4
prepared transaction off.   8
body                        4 + n
topic                       1 | 2   + n; two length bytes in V2
properties                  2 + n
==========================  ======  =================================================

The next record starts ``size`` bytes after this one: bytes after the properties, which no known
broker writes, are skipped.
"""

from __future__ import annotations

import enum
from typing import Final

__all__ = [
    "BATCH_ITEM_OVERHEAD",
    "BORN_HOST_AT",
    "FIXED_SIZE",
    "IPV6_EXTRA",
    "MAGIC_V1",
    "MAGIC_V2",
    "MAX_BODY_BYTES",
    "MAX_INNER_MESSAGES",
    "MAX_TOPIC_BYTES",
    "MAX_TOPIC_BYTES_V1",
    "MIN_RECORD_SIZE",
    "STORE_HOST_AT",
    "MessageFlag",
]

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
"""Written for topics longer than 127 bytes (5.1 and later)."""

# Offsets of a record with IPv4 hosts; each IPv6 host moves what follows it by IPV6_EXTRA.
BORN_HOST_AT: Final = 48
STORE_HOST_AT: Final = 64
FIXED_SIZE: Final = 88
"""Everything up to and with the body's length."""
IPV6_EXTRA: Final = 12

MIN_RECORD_SIZE: Final = FIXED_SIZE + 1 + 2
"""A V1 record with IPv4 hosts, no body, no topic, no properties."""

BATCH_ITEM_OVERHEAD: Final = 22
"""Size, magic, CRC, flag, body length and properties length of one item of a batch body."""

MAX_TOPIC_BYTES_V1: Final = 127
MAX_TOPIC_BYTES: Final = 32_767

MAX_BODY_BYTES: Final = 128 * 1024 * 1024
"""What one decompressed body may take: the broker's own cap of a whole answer (``MAX_PULL_MSG_SIZE``)."""

MAX_INNER_MESSAGES: Final = 1 << 18
"""How many messages one batch may hold: more than the 4 MiB that a broker takes have room for."""


class MessageFlag(enum.IntFlag):
    """The bits of a record's sysFlag (``MessageSysFlag``)."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300
    COMPRESSION_TYPE = 0x700
