"""Declared headers: fields to text and back, for every header that there is."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from pyspark_rocketmq.errors import RemoteProtocolError
from pyspark_rocketmq.remoting import header as headers
from pyspark_rocketmq.remoting.header import Header, RequestHeader, ResponseHeader

ours = examples(300)

HEADERS = [
    cls
    for cls in vars(headers).values()
    if isinstance(cls, type)
    and issubclass(cls, Header)
    and cls not in {Header, RequestHeader, ResponseHeader}
]
VALUES: dict[type, st.SearchStrategy[Any]] = {
    str: st.text(max_size=20),
    int: st.integers(-(2**63), 2**63 - 1),
    bool: st.booleans(),
}


def values(cls: type[Header]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {field.name: VALUES[field.type] for field in cls.FIELDS if field.required},
        optional={field.name: VALUES[field.type] for field in cls.FIELDS if not field.required},
    )


def test_there_are_headers() -> None:
    assert len(HEADERS) > 50


@ours
@given(st.sampled_from(HEADERS), st.data())
def test_round_trip(cls: type[Header], data: st.DataObject) -> None:
    header = cls(**data.draw(values(cls)))
    fields = header.fields()
    assert set(fields) <= {name for field in cls.FIELDS for name in (field.wire, field.also)}
    assert cls.parse(fields) == header


@ours
@given(st.sampled_from(HEADERS), st.data())
def test_any_fields_parse_or_are_the_peers_error(cls: type[Header], data: st.DataObject) -> None:
    fields = data.draw(
        st.dictionaries(st.sampled_from([field.wire for field in cls.FIELDS] or ["x"]), st.text(max_size=20))
    )
    with contextlib.suppress(RemoteProtocolError):
        cls.parse(fields)
