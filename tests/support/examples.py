"""Hypothesis' profiles.

``fixed`` gives the same examples in each run of `make test`. ``search``, of `make test-all`, also repeats
what failed before.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

EXAMPLES = Path(__file__).parents[2] / ".hypothesis" / "examples"


def load_profiles() -> None:
    """Register both, and use the fixed one unless ``--hypothesis-profile`` selects another."""
    settings.register_profile("fixed", deadline=None, database=None, derandomize=False)
    settings.register_profile(
        "search",
        deadline=None,
        database=DirectoryBasedExampleDatabase(EXAMPLES),
        derandomize=False,  # also where CI sets hypothesis' own profile
        print_blob=True,
    )
    settings.load_profile("fixed")
