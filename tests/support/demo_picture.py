"""Draws a run of the demo for the README: ``python -m tests.support.demo_picture docs/pictures/demo.svg``."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pyspark_rocketmq.cli.job_commands.demo_view import result_view, summary
from pyspark_rocketmq.demo.run import DemoRun, DemoSettings


def draw(run: DemoRun) -> str:
    """Return a finished run's output as an SVG that loads nothing, fonts neither."""
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(Text("$ make demo\n", style="dim"))
    console.print(result_view(run))
    console.print(summary(run), soft_wrap=True)
    svg = console.export_svg(title="make demo", unique_id="demo")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main(file: str) -> None:
    run = DemoRun(DemoSettings())
    run.fetch()
    run.run()
    Path(file).write_text(draw(run), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
