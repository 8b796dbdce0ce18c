"""A Java consumer as a process beside the test: a member of a group that tells what it gets."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.wait import eventually

from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.devcluster.settings import jvm_arguments


class JavaMember:
    """``GroupMember.java`` from its start until `leave` or `kill`.

    ``got`` holds (queue id, queue offset, body) of each message, in the order of arrival.
    """

    def __init__(
        self, cluster: DevCluster, classes: Path, group: str, topic: str, strategy: str = "average"
    ) -> None:
        home = cluster.home / "tools"
        class_path = ":".join(map(str, [home / "conf", classes, *cluster.jars]))
        java = str(cluster.java.executable)
        arguments = (cluster.name_server, group, topic, strategy)
        self._command = [
            *(java, *jvm_arguments(home, "128m", ()), "-cp", class_path, "GroupMember"),
            *arguments,
        ]
        self._lines: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader.start()
        try:
            # Its last lines may come after its end.
            eventually(lambda: "|started" in self._lines or not self._reader.is_alive(), 60, what="a start")
            assert "|started" in self._lines, "it has ended"
        except AssertionError as error:
            self.kill()
            raise AssertionError(
                "\n".join(["the Java consumer did not start:", *self._lines[-30:]])
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def got(self) -> list[tuple[int, int, str]]:
        """What arrived so far."""
        rows = [line[1:].split("\t") for line in self._lines if line.startswith("|") and "\t" in line]
        return [(int(queue_id), int(offset), body) for queue_id, offset, body in rows]

    def leave(self) -> None:
        """Let it leave the group in good order."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def kill(self) -> None:
        """Kill it, if it is still there."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait(60)
        self._reader.join(60)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line.rstrip("\n"))
