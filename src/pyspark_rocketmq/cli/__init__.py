"""The command line ``pyspark-rocketmq``: one module per noun. Modules only parse arguments and print."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

import typer

from pyspark_rocketmq._missing_pyspark import explain_missing_pyspark
from pyspark_rocketmq._version import __version__
from pyspark_rocketmq.cli.command_groups import CLICK_ERROR, Home, LazyGroup
from pyspark_rocketmq.cli.failures import report_error, report_usage_error
from pyspark_rocketmq.errors import RocketMQError

__all__ = ["COMMANDS", "app", "main"]

COMMANDS = {
    "demo": Home(
        "job_commands.demo",
        "demo",
        "Stream orders through RocketMQ and Spark, compute revenue per product, and check every cent.",
        "EXAMPLES",
    ),
    "doctor": Home(
        "cluster_commands.doctor",
        "doctor",
        "Check this machine and, if a name server is given, its RocketMQ cluster.",
        "EXAMPLES",
    ),
    "cluster": Home(
        "cluster_commands.cluster", "app", "Start, inspect and stop a local RocketMQ cluster for development."
    ),
    "topics": Home(
        "cluster_commands.topics", "topics", "List the topics with their brokers and queues.", "LIST_EXAMPLES"
    ),
    "topic": Home("cluster_commands.topics", "app", "Show, create, alter and delete a topic."),
    "groups": Home(
        "cluster_commands.groups", "groups", "List the consumer groups of the brokers.", "GROUPS_EXAMPLES"
    ),
    "lag": Home("cluster_commands.groups", "lag", "Show a consumer group's lag per queue.", "LAG_EXAMPLES"),
    "offsets": Home(
        "cluster_commands.offsets",
        "app",
        "Show, move, export and import offsets of consumer groups and checkpoints.",
    ),
    "peek": Home(
        "message_commands.peek",
        "peek",
        "Show messages of a topic: the newest ones, or by time, key or id. Consumes nothing.",
        "EXAMPLES",
    ),
    "produce": Home(
        "message_commands.produce",
        "produce",
        "Send each line of a file or of standard input as a message. Empty lines are skipped.",
        "EXAMPLES",
    ),
    "consume": Home(
        "message_commands.consume",
        "consume",
        "Print a topic's messages, one per line. Stops at the end unless --follow is given.",
        "EXAMPLES",
    ),
    "export": Home(
        "message_commands.transfer",
        "export",
        "Write a topic's messages to a file as JSON lines or Parquet, queue by queue. Consumes nothing.",
        "EXPORT_EXAMPLES",
    ),
    "import": Home(
        "message_commands.transfer",
        "import_",
        "Send the messages of an exported file to a topic. A dry run unless --yes is given.",
        "IMPORT_EXAMPLES",
    ),
    "bench": Home(
        "cluster_commands.bench",
        "bench",
        "Measure the throughput of writing and reading with one thread, without Spark.",
        "EXAMPLES",
    ),
    "dashboard": Home(
        "job_commands.dashboard",
        "dashboard",
        "Serve a read-only page that shows running queries and the cluster, until Ctrl-C.",
        "EXAMPLES",
    ),
    "exporter": Home(
        "cluster_commands.exporter",
        "exporter",
        "Serve lag, dead letters and topic rates for Prometheus, until Ctrl-C.",
        "EXAMPLES",
    ),
    "options": Home(
        "options",
        "options",
        'List the options of `format("rocketmq")` with their defaults and aliases.',
        "EXAMPLES",
    ),
    "replay": Home(
        "message_commands.replay",
        "replay",
        "Resend messages that a group's consumers could not process. A dry run unless --yes is given.",
        "EXAMPLES",
    ),
    "report": Home(
        "cluster_commands.report",
        "report",
        "Print versions, brokers, routes and options for a bug report, without secrets.",
        "EXAMPLES",
    ),
    "sql": Home(
        "job_commands.sql",
        "sql",
        "Run a SQL job: CREATE TABLE, CREATE VIEW, and INSERT INTO as streaming queries.",
        "EXAMPLES",
    ),
    "streams": Home("job_commands.streams", "app", "Run, inspect and stop stream jobs."),
    "tables": Home("job_commands.tables", "app", "Show topics as SQL tables."),
    "tx": Home(
        "cluster_commands.tx",
        "app",
        "List, finish and give up transactional writes that a crash interrupted.",
    ),
}
"""Every command, in the order of the help."""


_OUTPUT_ERRNOS: Final = {errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT}
"""A disk that is full, or lost."""


class _Commands(LazyGroup):
    homes: ClassVar = COMMANDS


app = typer.Typer(
    name="pyspark-rocketmq",
    cls=_Commands,
    help="Apache RocketMQ for PySpark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    _version: bool = typer.Option(
        False, "--version", help="Print the version.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Apache RocketMQ for PySpark."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. An error prints its message, without a traceback, and sets an exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: the arguments of the process.

    Exit codes: 0 success, 1 failure, 2 usage error, 130 interrupted (Ctrl-C, SIGTERM). With ``--json``, an
    error is a JSON object on standard error.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in _own_words(words)
    if arguments is None:  # a command that is ended cleans up
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        _replace_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a body may have what the terminal's encoding has not
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = app(words, prog_name="pyspark-rocketmq", standalone_mode=False)
        sys.stdout.flush()
    except RocketMQError as error:
        code = report_error(error, as_json=as_json)
    except ModuleNotFoundError as error:
        needed = explain_missing_pyspark(error)
        if needed is None:
            raise
        code = report_error(needed, as_json=as_json)
    except CLICK_ERROR as error:
        code = report_usage_error(error, as_json=as_json)
    except typer.Abort:
        print("aborted", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    except OSError as error:
        if error.errno not in _OUTPUT_ERRNOS or error.filename is not None:
            raise
        _discard_output()
        code = report_error(RocketMQError(f"the output cannot be written: {error.strerror}"), as_json=as_json)
    if code:
        sys.exit(code)


def _replace_closed_streams() -> None:
    """Take empty streams for those that are closed, as some schedulers start programs: Python has None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - until the end
            setattr(sys, name, stream)


def _discard_output() -> None:
    """Send what is still buffered to nowhere: Python would report the same failure again at its end."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _own_words(words: Sequence[str]) -> Sequence[str]:
    """Return the words that can have the command's ``--json``, not those of the script of a stream job."""
    command = tuple(words[:2])
    if command == ("streams", "run"):
        return words[:2]  # has no --json; its script may have any name
    if command != ("streams", "explain"):
        return words
    script = next((at for at, word in enumerate(words) if at > 1 and word.endswith(".py")), len(words))
    return words[:script]
