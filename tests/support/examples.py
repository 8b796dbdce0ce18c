"""Hypothesis' profiles, and how many examples a test has in each.

``fixed`` gives the same few examples in each run of `make test`. ``search``, of `make test-all`, gives many
new ones, and repeats what failed before. ``mutants``, of `make mutants`, does not shrink them.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase

_USUAL = 100

EXAMPLES = Path(__file__).parents[2] / ".hypothesis" / "examples"


def load_profiles() -> None:
    """Register them, and use the fixed one unless ``--hypothesis-profile`` selects another."""
    settings.register_profile(
        "fixed",
        deadline=None,
        database=None,
        derandomize=False,
        max_examples=40,
        suppress_health_check=[HealthCheck.too_slow],  # a busy machine draws nothing in a second
    )
    settings.register_profile(
        "search",
        deadline=None,
        max_examples=300,
        database=DirectoryBasedExampleDatabase(EXAMPLES),
        derandomize=False,  # also where CI sets hypothesis' own profile
        print_blob=True,
    )
    # `make mutants` needs to know that a test fails, not the smallest example.
    settings.register_profile(
        "mutants",
        deadline=None,
        database=None,
        derandomize=False,
        max_examples=40,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("fixed")


def examples(count: int) -> settings:
    """Return the settings of a test that needs this many where others have 100: the profile scales it."""
    return settings(max_examples=max(1, count * settings().max_examples // _USUAL))
