"""Stored messages as rows to be sent again."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.record.encode.stored_rows import rows_of_stored, unique_keys_of

ID = b"0123456789ABCDEF" * 2
MINE = {b"UNIQ_KEY": ID, b"COMMIT_TOPIC": b"orders-commits"}
NAMES = st.sampled_from([b"KEYS", b"TAGS", b"X_UNIQ_KEY", b"UNIQ_KEY_", b"my-COMMIT_TOPIC", b"\xff", b"a"])
VALUES = st.binary(max_size=12).map(lambda text: text.replace(b"\x01", b"?").replace(b"\x02", b"?"))


def encode(properties: dict[bytes, bytes], *, closed: bool = True) -> bytes:
    text = b"".join(b"%b\x01%b\x02" % each for each in properties.items())
    return text if closed else text[:-1]


@given(
    st.lists(st.tuples(st.dictionaries(NAMES, VALUES), st.randoms(), st.booleans()), min_size=1, max_size=9)
)
def test_everything_but_the_mark_is_sent_again_whatever_the_order(stored: list) -> None:
    texts, expected = [], []
    for properties, chance, closed in stored:
        items = [*(properties | MINE).items()]
        chance.shuffle(items)
        texts.append(encode(dict(items), closed=closed))
        expected.append({name: value for name, value in items if name not in MINE})
    bodies = pa.array([b"%d" % number for number in range(len(texts))])
    flags = pa.array(range(len(texts)), pa.int32())
    rows, unique = rows_of_stored(bodies, pa.array(texts, pa.binary()), flags)
    assert rows.properties.to_pylist() == [encode(properties) for properties in expected]
    assert unique.to_pylist() == [b"UNIQ_KEY\x01%b\x02" % ID] * len(texts)
    assert (rows.body, rows.flag.tolist()) == (bodies, flags.to_pylist())
    assert rows.place.tolist() == list(range(len(texts)))
    assert not rows.single.any()


def test_no_messages_are_no_rows() -> None:
    none = pa.array([], pa.binary())
    rows, unique = rows_of_stored(none, none, pa.array([], pa.int32()))
    assert (len(rows), len(unique)) == (0, 0)


def test_what_brokers_ignore_in_a_batch_is_sent_alone() -> None:
    texts = [encode(MINE | {name: b"1"}) for name in (b"_SYS_MSG_PRIORITY_", b"__PRIORITY__", b"a")]
    rows, _ = rows_of_stored(pa.array([b"x"] * 3), pa.array(texts), pa.array([0] * 3, pa.int32()))
    assert rows.single.sum() == 1


@pytest.mark.parametrize("text", [b"", b"a\x01b\x02", b"UNIQ_KEY\x01short\x02", b"X_UNIQ_KEY\x01%b\x02" % ID])
def test_a_message_that_no_producer_of_this_package_sent_is_an_error(text: bytes) -> None:
    with pytest.raises(CorruptMessageError, match="no unique key"):
        rows_of_stored(pa.array([b"x"]), pa.array([text]), pa.array([0], pa.int32()))


def test_the_keys_of_any_messages() -> None:
    texts = [encode(MINE), b"", b"UNIQ_KEY\x01short", b"X_UNIQ_KEY\x01%b\x02" % ID]
    found = unique_keys_of(pa.array(texts, pa.binary())).to_pylist()
    assert found == [b"UNIQ_KEY\x01%b\x02" % ID, b"UNIQ_KEY\x01short\x02"]
