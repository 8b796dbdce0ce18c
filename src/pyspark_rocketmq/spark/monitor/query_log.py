"""The progress of a session's queries as files, which a dashboard can show, also on another machine."""

from __future__ import annotations

import json
import logging
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.spark.causes import find_own_error

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["QueryLog", "last_cause"]

_LOG: Final = logging.getLogger(__name__)
_MAX_BYTES: Final = 16 << 20
_MOST_RUNS: Final = 1_000
_RUN: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAX_TRACE: Final = 64 << 10
_TRACEBACK: Final = "Traceback (most recent call last):"
_CAUSED_BY: Final = "Caused by: "


def last_cause(trace: str) -> str:
    """Return the line of an exception's trace that names the cause.

    It is that of this package's last error, which has no traceback, else that of Python's last traceback,
    else that of Java's last "Caused by", else the first line.
    """
    lines = [line for line in trace.splitlines() if line.strip()]
    tracebacks = [at for at, line in enumerate(lines) if _TRACEBACK in line]
    after = lines[tracebacks[-1] + 1 :] if tracebacks else []
    python = next((line for line in after if not line[0].isspace()), None)
    java = [line.removeprefix(_CAUSED_BY) for line in lines if line.startswith(_CAUSED_BY)]
    return find_own_error(trace) or python or (java or lines or ["no cause was given"])[-1 if java else 0]


class QueryLog(StreamingQueryListener):
    """Writes Spark's reports of every streaming query to a folder: one file per run, one line per event.

    ``pyspark-rocketmq dashboard --query-log FOLDER`` follows it. Lines are JSON: ``event`` (started,
    progress, terminated), ``at`` in milliseconds, ``runId``, and Spark's report. A failure has its last cause
    (``reason``) and its ``trace``. At 16 MiB, a file is renamed to ``.old``, replacing an older one. When a
    run starts, the files of all but the 1,000 runs that were written last are deleted. The log never fails a
    query: a full disk is a warning in the log.

    Parameters
    ----------
    folder : str or Path
        A folder on the driver's machine; created if it does not exist.
    clock : Clock

    Examples
    --------
    >>> spark.streams.addListener(QueryLog("/var/log/queries"))  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._lock = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Write that a query began."""
        self._write("started", str(event.runId), queryId=str(event.id), name=event.name)
        try:
            self._delete_old()
        except OSError as error:
            _LOG.warning("old files of the query log %s are not deleted: %s", self._folder, error.strerror)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Write the report of a batch."""
        progress = event.progress
        self._write("progress", str(progress.runId), progress=json.loads(progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: there is no progress."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Write that a query ended; if it failed, also the last cause and the trace."""
        trace = event.exception
        facts = {} if trace is None else {"reason": last_cause(trace), "trace": trace[:_MAX_TRACE]}
        failed = trace is not None
        self._write("terminated", str(event.runId), queryId=str(event.id), failed=failed, **facts)

    def _delete_old(self) -> None:
        """Delete the files of runs that were written long ago, whatever session wrote them."""
        with self._lock:
            files = [file for file in self._folder.glob("*.jsonl") if _RUN.fullmatch(file.stem)]
            for _, file in sorted((file.stat().st_mtime, file) for file in files)[:-_MOST_RUNS]:
                file.with_suffix(".jsonl.old").unlink(missing_ok=True)
                file.unlink(missing_ok=True)

    def _write(self, event: str, run_id: str, **facts: Any) -> None:
        line = json.dumps({"event": event, "at": self._clock.now_ms(), "runId": run_id, **facts})
        file = self._folder / f"{run_id}.jsonl"
        try:
            with self._lock:
                if file.exists() and file.stat().st_size > _MAX_BYTES:
                    file.replace(file.with_suffix(".jsonl.old"))
                with file.open("a", encoding="utf-8") as out:
                    out.write(line + "\n")
        except OSError as error:
            _LOG.warning("a query's progress is not written to %s: %s", file, error.strerror)
