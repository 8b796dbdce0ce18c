"""The Python programs of the documentation's pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[2] / "docs"


def python_blocks(page: str) -> list[str]:
    """Return the Python programs of a page in ``docs``, as they stand, in order, for tests that run them.

    ``tests/docs/test_pages.py`` fails for a page for which no test calls this, unless it shows examples.
    """
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
