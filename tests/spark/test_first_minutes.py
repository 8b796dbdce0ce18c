"""The quickstart's blocks."""

from __future__ import annotations

from tests.support.pasted_page import blocks
from tests.support.wheel import ROOT


def test_the_quickstart_s_python_blocks_are_the_example() -> None:
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    python = [block.code for block in blocks(page) if block.language == "python"]
    example = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    assert len(python) > 4
    shown = [line for code in python for line in code.splitlines() if line]
    program = [line for line in example.split('"""')[2].splitlines() if line]

    def imports(lines: list[str]) -> list[str]:
        return sorted(line for line in lines if line.startswith("from "))

    assert imports(shown) == imports(program)
    assert [line for line in shown if line not in imports(shown)] == [
        line for line in program if line not in imports(program)
    ]
