"""``pyspark-rocketmq demo``: a streaming job on a real broker, shown live, checked and cleaned up."""

from __future__ import annotations

from typing import Annotated

import typer

from pyspark_rocketmq.cli.printing import AsJson, examples, print_json

__all__ = ["EXAMPLES", "demo"]

EXAMPLES = examples("demo", "demo --messages 1000000 --rate 0", "demo --namesrv 10.0.0.1:9876 --keep")


def demo(
    messages: Annotated[int, typer.Option(help="Number of orders.", min=1)] = 100_000,
    rate: Annotated[int, typer.Option(help="Maximum orders per second; 0 for no limit.", min=0)] = 20_000,
    namesrv: Annotated[
        str | None,
        typer.Option(help="Use this name server's RocketMQ, with a temporary topic."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the topic, and the RocketMQ if the demo started one.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Stream orders through RocketMQ and Spark, compute revenue per product, and check every cent.

    Starts RocketMQ and Spark on this machine and sends an hour of a shop's orders. A Structured Streaming
    query reads, parses and sums them. The demo compares the totals with the orders sent, shows how long each
    phase took, and removes everything. Exit code 1 if the totals differ.
    """
    from rich.console import Console
    from rich.live import Live

    # Spark takes a second to import: only this command waits for it.
    from pyspark_rocketmq.cli.job_commands.demo_view import LiveView, result_json, result_view, summary
    from pyspark_rocketmq.demo.run import DemoRun, DemoSettings

    console = Console(highlight=False)
    run = DemoRun(DemoSettings(messages=messages, rate=rate, name_server=namesrv, keep=keep))
    try:
        run.fetch()
        if console.is_terminal and not json:
            view = LiveView(run)
            with Live(get_renderable=view.render, console=console, refresh_per_second=8, transient=True):
                run.run()
        else:
            run.run()
    except KeyboardInterrupt:
        console.print("interrupted; all started processes are stopped")
        raise typer.Exit(130) from None
    if json:
        print_json(result_json(run))
    else:
        console.print(result_view(run))
        console.print(summary(run), soft_wrap=True)  # no line breaks in commands that users copy
    if run.differences:
        raise typer.Exit(1)
