"""A stream continues from the state that an earlier release kept."""

from __future__ import annotations

import json

import pytest
from tests.golden.stream_state import CHECKPOINTS, STATE, Spark, from_document, plain, to_document

RELEASES = sorted(path.name for path in CHECKPOINTS.iterdir())


def kept(release: str, name: str) -> dict[str, object]:
    return json.loads((CHECKPOINTS / release / "streams" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", STATE)
def test_a_stream_continues_from_the_state_of_an_earlier_release(release: str, name: str) -> None:
    document = kept(release, name)
    make, key, first, then = STATE[name]
    later, alone = Spark(from_document(document)), Spark()
    alone.run(make(), key, first)
    assert later.run(make(), key, then) == alone.run(make(), key, then)
    assert plain(later.values) == plain(alone.values)


@pytest.mark.parametrize("name", STATE)
def test_this_release_keeps_the_same_state(name: str) -> None:
    document = kept(RELEASES[-1], name)
    make, key, first, _ = STATE[name]
    spark = Spark()
    spark.run(make(), key, first)
    assert to_document(spark)["schemas"] == document["schemas"]
    assert plain(spark.values) == plain(from_document(document))
