"""Hypothesis' profiles.

``fixed`` gives the same examples in each run of `make test`. ``search``, of `make test-all`, also repeats
what failed before. ``mutants``, of `make mutants`, gives few examples and does not shrink them.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase

EXAMPLES = Path(__file__).parents[2] / ".hypothesis" / "examples"


def load_profiles() -> None:
    """Register them, and use the fixed one unless ``--hypothesis-profile`` selects another."""
    settings.register_profile("fixed", deadline=None, database=None, derandomize=False)
    settings.register_profile(
        "search",
        deadline=None,
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
        max_examples=50,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("fixed")
