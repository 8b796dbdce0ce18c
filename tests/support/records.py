"""Hypothesis strategies for stored messages of every kind."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pyspark_rocketmq.record.batch_items import BatchItem, encode_batch
from pyspark_rocketmq.record.compress import Compression
from pyspark_rocketmq.record.message import encode_message

_TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=20)
_NAMES = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "MSG_REGION"]) | _TEXT.filter(bool)
_HOSTS = st.sampled_from(["10.0.0.1:10911", "127.0.0.1:0", "[::1]:10911", "[2001:db8::7]:65535"])
_INT32 = st.integers(-(2**31), 2**31 - 1)
_MS = st.integers(-(2**52), 2**52)

properties = st.dictionaries(_NAMES, _TEXT.filter(bool), max_size=6)
"""Properties as a broker stores them: no empty values."""

_ENTRIES = st.sampled_from(
    [
        "KEYS\x01a\x02",
        "KEYS\x01b\x02",
        "TAGS\x01t\x02",
        "a\x011\x02",
        "a\x012\x02",
        "a\x01\x01\x02",
        "\x01",
        "\x02",
        "é",
        "TAGS\x01\udcd6\udcd0\x02",
        "KEYS\x01a\udce4\x02",
        "\udcff\x01a\x02",
        "\udcfe\x01b\x02",
    ]
)
"""Surrogates stand for bytes that are not UTF-8."""
raw_properties = st.one_of(
    st.lists(_ENTRIES, max_size=6).map(lambda parts: "".join(parts).encode(errors="surrogateescape")),
    properties.map(lambda mapping: "\x02".join(f"{k}\x01{v}" for k, v in mapping.items()).encode()),
)
"""Property strings that no current client writes: repeated names, stray or missing separators."""

batch_items = st.lists(
    st.builds(BatchItem, body=st.binary(max_size=30), properties=properties, flag=_INT32), max_size=4
)

RECORD_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["orders", "%RETRY%group", "t" * 127, "t" * 128, "ü" * 100]),
    "queue_id": st.integers(0, 2**31 - 1),
    "commit_log_offset": st.integers(0, 2**63 - 1),
    "compression": st.sampled_from(list(Compression)),
    "flag": _INT32,
    "sys_flag": st.sampled_from([0, 0x2, 0x4, 0x8, 0xC, 0x40, 0x80]),
    "born_timestamp": _MS,
    "born_host": _HOSTS,
    "store_timestamp": _MS,
    "store_host": _HOSTS,
    "reconsume_times": _INT32,
    "prepared_transaction_offset": st.integers(-(2**63), 2**63 - 1),
}


@st.composite
def records(draw: st.DrawFn, *, max_size: int = 12) -> list[tuple[bytes, int, int]]:
    """Draw records with ascending offsets: the bytes, the first offset, and the offset behind."""
    drawn: list[tuple[bytes, int, int]] = []
    offset = draw(st.integers(0, 2**40))
    # Most topics are uniform: draw the fields once for all, or anew for each.
    fields = {name: draw(strategy) for name, strategy in RECORD_FIELDS.items()}
    uniform = draw(st.booleans())
    for _ in range(draw(st.integers(0, max_size))):
        if not uniform:
            fields = {name: draw(strategy) for name, strategy in RECORD_FIELDS.items()}
        if draw(st.integers(0, 5)) == 0:
            items = draw(batch_items)
            body, count, sys_flag = encode_batch(items), len(items), 0xC0
        else:
            body, count, sys_flag = draw(st.binary(max_size=40)), 1, fields["sys_flag"]
        data = encode_message(
            body,
            draw(properties | raw_properties),
            **(fields | {"queue_offset": offset, "sys_flag": sys_flag}),
        )
        drawn.append((data, offset, offset + count))
        offset += max(1, count) + draw(st.sampled_from([0, 0, 0, 1, 900]))
    return drawn
