"""``pyspark-rocketmq doctor``: diagnose problems and advise what to do."""

from __future__ import annotations

import os
from typing import Annotated, Final

import typer

from pyspark_rocketmq.cli.connect import Namesrv, Settings, client_options, is_cluster_given
from pyspark_rocketmq.cli.printing import AsJson, console, examples, print_json
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.tools.findings import Finding, Verdict

__all__ = ["EXAMPLES", "doctor"]

EXAMPLES: Final = examples(
    "doctor", "doctor -n 10.0.0.1:9876 --topic orders --group billing", "doctor --json"
)

_MARKS: Final = {
    Verdict.GOOD: "[green]✔[/green]",
    Verdict.POOR: "[yellow]![/yellow]",
    Verdict.BAD: "[red]✘[/red]",
}


def doctor(
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Also check this topic.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Also check this consumer group.")
    ] = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Check this machine and, if a name server is given, its RocketMQ cluster.

    Each finding says what was found and what to do. Exit code 1 if something is broken.
    """
    from pyspark_rocketmq.tools.doctor import examine
    from pyspark_rocketmq.tools.machine import examine_machine

    findings = examine_machine(os.environ)
    if not is_cluster_given(namesrv, option):
        if topic is not None or group is not None:
            raise OptionError("a topic or group needs --namesrv, or NAMESRV_ADDR in the environment")
        findings.append(
            Finding(
                Verdict.POOR,
                "name server",
                "none was given, so no RocketMQ was looked at",
                "give --namesrv host:port, or set NAMESRV_ADDR",
            )
        )
    else:
        findings += examine(client_options(namesrv, option), topic=topic, group=group)
    if json:
        print_json(findings)
    else:
        for finding in findings:
            _print(finding)
    if any(finding.verdict is Verdict.BAD for finding in findings):
        raise typer.Exit(1)


def _print(finding: Finding) -> None:
    from rich.markup import escape

    out = console()
    out.print(f"{_MARKS[finding.verdict]} [bold]{escape(finding.subject)}[/bold]  {escape(finding.seen)}")
    if finding.advice:
        out.print(f"  → {escape(finding.advice)}", style="dim")
