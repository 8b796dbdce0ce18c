from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.offsets.offset_log import OffsetLogEntry

NAMES = st.from_regex(r"[a-zA-Z0-9_]+", fullmatch=True)
OFFSETS = st.one_of(st.just("-"), st.integers().map(str), st.just('{"a:b": 1}'))


@given(st.lists(OFFSETS))
def test_version_1_is_written_as_it_was_read(offsets):
    text = "\n".join(["v1", '{"batchWatermarkMs":5}', *offsets])
    entry = OffsetLogEntry.parse(text)
    assert entry.text() == text
    assert entry.watermark_ms == 5
    assert list(entry.sources) == [str(number) for number in range(len(offsets))]


@given(st.dictionaries(NAMES, OFFSETS))
def test_version_2_is_written_as_it_was_read(sources):
    text = "\n".join(["v2", "{}", *(f"{name}:{offset}" for name, offset in sources.items())])
    entry = OffsetLogEntry.parse(text)
    assert entry.text() == text
    assert entry.sources == sources
