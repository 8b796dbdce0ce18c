"""A test's place follows from what it needs, and CONTRIBUTING.md has all needs."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.support.places import NEEDS, needs

ROOT = Path(__file__).parents[2]


def test_contributing_has_every_mark() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| mark \|.*\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE)) == NEEDS


@pytest.mark.needs("cluster", "kills")
def test_a_mark_says_what_is_needed(request: pytest.FixtureRequest) -> None:
    assert needs(request.node) == {"cluster", "kills"}
    assert request.node.get_closest_marker("large") is not None


@pytest.mark.parametrize(
    ("path", "fixtures", "parameters", "expected"),
    [
        ("contract", ["mq49"], {}, {"old"}),
        ("contract", ["cluster"], {"cluster": "mq49"}, {"old"}),
        ("spark", ["version"], {"version": "4.9.7"}, {"old"}),
        ("contract", ["cluster"], {"cluster": "mq54"}, {"old"}),
        ("contract", ["cluster"], {"cluster": "mq"}, set()),
        ("contract", ["cluster", "mq54"], {"cluster": "proxied"}, {"cluster", "old"}),
        ("golden", ["version"], {"version": "4.9.7"}, set()),  # captured bytes need no broker
    ],
)
def test_fixtures_and_parameters_say_which_server_is_needed(
    path: str, fixtures: list[str], parameters: dict[str, str], expected: set[str]
) -> None:
    item = SimpleNamespace(
        path=ROOT / "tests" / path / "test_it.py",
        fixturenames=fixtures,
        callspec=SimpleNamespace(params=parameters),
        iter_markers=lambda _: iter(()),
    )
    assert needs(cast("pytest.Item", item)) == expected


def test_what_needs_nothing_is_in_make_test(request: pytest.FixtureRequest) -> None:
    assert needs(request.node) == set()
    assert request.node.get_closest_marker("large") is None
    request.node.add_marker(pytest.mark.needs("a moon"))
    with pytest.raises(pytest.UsageError, match="a moon"):
        needs(request.node)
