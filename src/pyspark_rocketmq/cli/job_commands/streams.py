"""``pyspark-rocketmq streams``: run, inspect and stop jobs of `pyspark_rocketmq.streams`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_rocketmq.cli.command_groups import CommandGroup
from pyspark_rocketmq.cli.job_commands.scripts import place_errors, run_script
from pyspark_rocketmq.cli.printing import AsJson, console, examples, print_json, print_table, timestamp
from pyspark_rocketmq.errors import OptionError, RocketMQError

if TYPE_CHECKING:
    from pyspark_rocketmq.streams.run.job_registry import JobRecord

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, help="Run, inspect and stop stream jobs.", no_args_is_help=True)

Script = Annotated[Path, typer.Argument(help="A Python script that builds pipelines and starts them.")]
Job = Annotated[str, typer.Argument(help="The job: namespace.pipeline, or its job id.")]

_STOP_TIMEOUT_MS = 60_000
_WITH_ARGUMENTS = {"allow_extra_args": True, "allow_interspersed_args": False}
"""Arguments before the script are ours. Arguments after it, including options, are the script's."""


@app.command(
    context_settings=_WITH_ARGUMENTS,
    epilog=examples("streams run my_job.py", "streams run my_job.py 127.0.0.1:9876"),
)
def run(context: typer.Context, script: Script) -> None:
    """Run a script whose pipelines end in start(). Arguments after the script are passed to it.

    An error is one line with the script's line. Spark's log is in a file, which an error names.
    """
    from pyspark_rocketmq.cli.job_commands.quiet_spark import quiet_spark
    from pyspark_rocketmq.cli.job_commands.script_launcher import ScriptLauncher
    from pyspark_rocketmq.streams.run.launcher import launching_with

    launcher = ScriptLauncher()
    with quiet_spark():
        try:
            with launching_with(launcher), place_errors(script):
                run_script(script, context.args)
        finally:
            launcher.finish()
    if not launcher.launched:
        raise OptionError("the script starts no pipeline: call start() on it", script=script)


@app.command(
    context_settings=_WITH_ARGUMENTS,
    epilog=examples("streams explain my_job.py", "streams explain --picture job.svg my_job.py"),
)
def explain(
    context: typer.Context,
    script: Script,
    picture: Annotated[Path | None, typer.Option(help="Write an SVG diagram to this file.")] = None,
    json: AsJson = False,
) -> None:
    """Show the steps of a script's pipelines and which of them need Python, without starting them.

    Arguments after the script are passed to it.
    """
    from pyspark_rocketmq.streams.plan.explain import draw_plan, explain_plan, steps
    from pyspark_rocketmq.streams.run.launcher import PlanRecorder, launching_with

    recorder = PlanRecorder()
    with launching_with(recorder), place_errors(script):
        run_script(script, context.args)
    plans = recorder.plans
    if not plans:
        raise OptionError("the script starts no pipeline", script=script)
    if json:
        print_json([{"job": plan.job, "steps": steps(plan)} for plan in plans])
    else:
        for plan in plans:
            typer.echo(explain_plan(plan))
    if picture is not None:
        picture.write_text(draw_plan(plans[0]), encoding="utf-8")


@app.command("list", epilog=examples("streams list", "streams list --json"))
def list_(json: AsJson = False) -> None:
    """List the jobs that were started on this machine."""
    from pyspark_rocketmq.streams.run.job_registry import jobs

    rows = jobs()
    if json:
        print_json(
            [
                {
                    "job": r.job,
                    "running": r.is_running(),
                    "pid": r.pid,
                    "startTimestamp": r.started_ms,
                    "checkpoint": r.checkpoint,
                }
                for r in rows
            ]
        )
        return
    print_table(
        ("Job", "Running", "Process", "Started", "Checkpoint"),
        [(r.job, r.is_running(), str(r.pid), timestamp(r.started_ms), r.checkpoint) for r in rows],
    )


@app.command(epilog=examples("streams stop shop.revenue"))
def stop(job: Job, json: AsJson = False) -> None:
    """Stop a job after its current batch. After a restart it continues there."""
    from pyspark_rocketmq.streams.run.job_registry import find_job

    record = find_job(job)
    ran = record.is_running()
    if ran:
        _stop(job, record)
    if json:
        print_json({"job": job, "wasRunning": ran})
    else:
        console().print(f"{job} has stopped" if ran else f"{job} is not running", markup=False)


@app.command(epilog=examples("streams state shop.revenue", "streams state shop.carts items --changes --json"))
def state(
    job: Job,
    table: Annotated[
        str | None, typer.Argument(help="The state table; required if there are several.")
    ] = None,
    changes: Annotated[bool, typer.Option("--changes", help="Show the changes per batch.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = 20,
    json: AsJson = False,
) -> None:
    """Show a job's state as of its last batch. The job may be running."""
    from pyspark_rocketmq.cli.job_commands.rows import cells, plain_rows
    from pyspark_rocketmq.streams import state as state_of

    found = state_of(job)
    df = (found.changes(table) if changes else found.table(table)).limit(limit)
    rows = plain_rows(df)
    if json:
        print_json(rows)
    else:
        print_table(df.columns, [cells(row) for row in rows])


@app.command(epilog=examples("streams rescale shop.revenue 8"))
def rescale(
    job: Job,
    partitions: Annotated[int, typer.Argument(help="Number of state partitions.", min=1)],
    json: AsJson = False,
) -> None:
    """Change the number of state partitions of a stopped job."""
    from pyspark_rocketmq.streams import rescale as rewrite

    rewrite(job, partitions)
    if json:
        print_json({"job": job, "partitions": partitions})
    else:
        console().print(f"the state of {job} has {partitions} partitions", markup=False)


def _stop(job: str, record: JobRecord) -> None:
    from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
    from pyspark_rocketmq.streams.run.job_registry import request_stop

    request_stop(job)
    deadline = Deadline(SYSTEM_CLOCK, _STOP_TIMEOUT_MS)
    while record.is_running():
        if deadline.expired:
            raise RocketMQError("the job did not stop within a minute", job=job, pid=record.pid)
        SYSTEM_CLOCK.sleep(0.2)
