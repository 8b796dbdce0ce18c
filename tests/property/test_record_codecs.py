"""The decompressors of the extra and those without it: the same bodies, the same refusals, for any bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.record import codecs
from pyspark_rocketmq.record.compress import Compression, compress, decompress

PACKED = [kind for kind in Compression if kind is not Compression.NONE]


def outcome(data: bytes, kind: Compression, limit: int, *, extra: bool) -> bytes | None:
    with pytest.MonkeyPatch.context() as patch:
        if not extra:
            patch.setattr(codecs, "optional", lambda _: None)
        try:
            return decompress(data, kind.value, limit=limit)
        except CorruptMessageError:
            return None


@settings(deadline=None)
@given(
    kind=st.sampled_from(PACKED),
    body=st.binary(max_size=300) | st.builds(bytes, st.integers(0, 5_000)),
    cut=st.integers(0, 40),
    flips=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), max_size=2),
    tail=st.binary(max_size=12),
    limit=st.sampled_from([10, 1_000, 1 << 20]),
)
def test_both_agree_about_any_bytes(
    kind: Compression, body: bytes, cut: int, flips: list[tuple[int, int]], tail: bytes, limit: int
) -> None:
    data = bytearray(compress(body, kind))
    for at, change in flips:
        data[at % len(data)] ^= change
    mangled = bytes(data[: len(data) - cut] if cut < 20 else data) + tail
    one, other = (outcome(mangled, kind, limit, extra=extra) for extra in (True, False))
    assert one == other
