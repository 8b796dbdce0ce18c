"""The newcomer's script: two pages pasted, and answers to mistakes, kept as text that people can read."""

from __future__ import annotations

from tests.support.pasted_page import blocks
from tests.support.wheel import ROOT

GOLDEN = ROOT / "tests" / "golden"


def test_it_has_sixty_steps_with_25_mistakes_on_the_command_line_and_25_in_spark() -> None:
    """``test_first_minutes.py``, ``test_cli_mistakes.py`` and ``test_mistakes.py`` run them."""
    pages = [ROOT / "README.md", ROOT / "docs" / "quickstart.md"]
    pasted = sum(len(blocks(page.read_text(encoding="utf-8"))) for page in pages)
    typed = (GOLDEN / "mistakes_on_the_command_line.txt").read_text(encoding="utf-8").count("[exit code ")
    in_spark = (GOLDEN / "mistakes_in_spark.txt").read_text(encoding="utf-8").count("== ")
    assert pasted >= 10
    assert min(typed, in_spark) >= 25
    assert pasted + typed + in_spark >= 60
