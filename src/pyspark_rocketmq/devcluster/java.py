"""Find, check and use the Java that runs the servers and tools."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark_rocketmq.errors import DevClusterError

__all__ = ["MINIMUM_JAVA", "Java", "class_path", "find_java"]

MINIMUM_JAVA = 17
"""The oldest Java supported by Spark 4. The servers use the same Java."""

_JAVA = "java.exe" if sys.platform == "win32" else "java"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ADVICE = f"install a JDK {MINIMUM_JAVA} or newer and put it on PATH, or point JAVA_HOME at it"


@dataclass(frozen=True, slots=True)
class Java:
    """A supported Java.

    Parameters
    ----------
    executable : Path
        The ``java`` program.
    version : int
        Its feature version, such as 17.
    """

    executable: Path
    version: int

    def compile(
        self, sources: Sequence[Path], *, jars: Sequence[Path], output: Path, timeout_s: float = 120
    ) -> Path:
        """Compile Java sources and return the folder of their classes.

        Parameters
        ----------
        sources, jars : sequence of Path
            The ``.java`` files and their class path.
        output : Path
            Folder for the classes. Created if missing.
        timeout_s : float, default 120

        Raises
        ------
        DevClusterError
            This Java has no compiler, or the sources do not compile. The error has javac's output.
        """
        compiler = self.executable.with_stem("javac")
        if not compiler.exists():
            raise DevClusterError(f"this Java has no compiler (javac): {_ADVICE}", java=self.executable)
        output.mkdir(parents=True, exist_ok=True)
        command: list[str | Path] = [compiler, "-nowarn", "-d", output, "-cp", class_path(jars), *sources]
        done = _run(command, timeout_s=timeout_s)
        if done.returncode:
            raise DevClusterError(
                "the Java sources do not compile", log_tail=done.stdout, exit_code=done.returncode
            )
        return output

    def run(
        self,
        main_class: str,
        *args: str,
        jars: Sequence[Path],
        jvm_args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        timeout_s: float = 120,
    ) -> str:
        """Run a Java program to its end and return its output (both streams).

        Parameters
        ----------
        main_class : str
        *args : str
            The program's arguments.
        jars : sequence of Path
            The class path: jars and class folders.
        jvm_args : sequence of str
        env : mapping of str to str, optional
            Added to this process's environment.
        timeout_s : float, default 120

        Raises
        ------
        DevClusterError
            The program failed, or ran longer than ``timeout_s`` and was killed.
        """
        command: list[str | Path] = [self.executable, *jvm_args, "-cp", class_path(jars), main_class, *args]
        done = _run(command, timeout_s=timeout_s, env=env)
        if done.returncode:
            raise DevClusterError(f"{main_class} failed", log_tail=done.stdout, exit_code=done.returncode)
        return done.stdout


def class_path(entries: Sequence[Path]) -> str:
    """Return a class path in Java's format."""
    return os.pathsep.join(str(entry) for entry in entries)


def find_java(environ: Mapping[str, str] = os.environ, *, minimum: int = MINIMUM_JAVA) -> Java:
    """Return the Java of ``JAVA_HOME`` or, if that is not set, of ``PATH``.

    If ``JAVA_HOME`` is set, ``PATH`` is not searched, as in Spark.

    Parameters
    ----------
    environ : mapping of str to str
        The environment.
    minimum : int
        The oldest accepted feature version.

    Raises
    ------
    DevClusterError
        Java is missing, does not run, or is too old. The message says what was found and what to do.
    """
    home = environ.get("JAVA_HOME")
    if home:
        executable = Path(home) / "bin" / _JAVA
        if not executable.exists():
            raise DevClusterError(f"JAVA_HOME has no bin/{_JAVA}: {_ADVICE}", java_home=home)
    else:
        found = shutil.which("java", path=environ.get("PATH"))
        if found is None:
            raise DevClusterError(f"no Java found: {_ADVICE}")
        executable = Path(found)
    version = _version_of(executable)
    if version < minimum:
        raise DevClusterError(
            f"found Java {version}, but {minimum} or newer is needed: {_ADVICE}", java=executable
        )
    return Java(executable, version)


@functools.cache
def _version_of(executable: Path) -> int:
    try:
        done = _run([executable, "-version"], timeout_s=30)
    except OSError as error:
        raise DevClusterError(
            f"this Java does not run ({error.strerror}): {_ADVICE}", java=executable
        ) from error
    match = _VERSION.search(done.stdout)
    if match is None:
        raise DevClusterError(
            f"this Java does not tell its version: {_ADVICE}", log_tail=done.stdout, java=executable
        )
    return int(match[1])


def _run(
    command: Sequence[str | Path], *, timeout_s: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **env} if env else None,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout.decode(errors="replace") if isinstance(expired.stdout, bytes) else ""
        raise DevClusterError(
            f"{Path(command[0]).name} did not end within {timeout_s:g} s", log_tail=output
        ) from expired
