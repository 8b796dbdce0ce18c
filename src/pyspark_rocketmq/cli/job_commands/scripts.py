"""Run a user's script, and report its errors with the script's line instead of our frames."""

from __future__ import annotations

import contextlib
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

import typer

from pyspark_rocketmq.errors import OptionError, RocketMQError

__all__ = ["place_errors", "run_script"]


def run_script(script: Path, arguments: Sequence[str]) -> None:
    """Run a script as ``python script arguments`` does.

    Raises
    ------
    OptionError
        The script does not exist.
    """
    if not script.is_file():
        raise OptionError("no such script", script=script)
    before = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = before


@contextlib.contextmanager
def place_errors(script: Path) -> Iterator[None]:
    """Add the script's line to errors of this package and of Spark; other errors show the script's frames.

    Raises
    ------
    RocketMQError
        An error of this package, or of Spark. Its message begins with the script's name and line.
    Exit
        Another error, whose traceback is printed.
    """
    try:
        yield
    except RocketMQError as error:
        error.message = _place(error, script) + error.message
        raise
    except Exception as error:
        if _is_of_spark(error):
            from pyspark_rocketmq.cli.job_commands.quiet_spark import describe_error

            raise RocketMQError(_place(error, script) + describe_error(error)) from error
        frames = _frames_from(error.__traceback__, script)
        if isinstance(error, SyntaxError) and error.filename == str(script):
            frames = None
        traceback.print_exception(type(error), error, frames)
        raise typer.Exit(1) from None


def _is_of_spark(error: Exception) -> bool:
    """Return whether an error is Spark's or py4j's, without importing them: no script needs to use Spark."""
    modules = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
    return bool(modules & {"pyspark", "py4j"})


def _place(error: BaseException, script: Path) -> str:
    """Return ``script, line 3: `` for the last line of the script that led to the error."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(script)
    ]
    return f"{script.name}, line {lines[-1]}: " if lines else ""


def _frames_from(trace: TracebackType | None, script: Path) -> TracebackType | None:
    """Return the part of a traceback that begins in the script."""
    while trace is not None and trace.tb_frame.f_code.co_filename != str(script):
        trace = trace.tb_next
    return trace
