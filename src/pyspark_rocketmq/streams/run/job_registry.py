"""The registry of this machine's jobs. A job runs only once; other processes can list and stop it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Final, Self

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.devcluster.system.locking import is_locked, try_file_lock
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.spark.filesystem import file_errors, local_folder
from pyspark_rocketmq.spark.stores.file_log import last_batch

__all__ = [
    "JobRecord",
    "checkpoint_of",
    "dead_letters_checkpoint",
    "find_job",
    "job_lock",
    "jobs",
    "jobs_home",
    "request_stop",
    "sources_of",
    "take_job_lock",
    "take_stop_request",
]

_ENV: Final = "PYSPARK_ROCKETMQ_STREAMS_HOME"
_LOCK: Final = "job.lock"
_OFFSETS: Final = "offsets"
_POLL_S: Final = 0.2
_DIGITS: Final = 12
_LAST_RUN_MS: Final = 3_000
"""The time that an earlier run has to release its job."""


def jobs_home() -> Path:
    """Return the folder of the jobs: ``$PYSPARK_ROCKETMQ_STREAMS_HOME``, or one in the home folder."""
    given = os.environ.get(_ENV)
    return Path(given) if given else Path.home() / ".pyspark-rocketmq" / "streams"


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Take a file that is written in place of another one: a part of it is never read.

    Raises
    ------
    RocketMQError
        The file cannot be written.
    """
    new = file.with_suffix(f".{os.getpid()}.tmp")
    with file_errors("a file of the job cannot be written", file=str(file)):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            yield new
            new.replace(file)
        except OSError:
            with contextlib.suppress(OSError):  # it may not exist
                new.unlink()
            raise


def file_name(job: str) -> str:
    """Return the file name for a job's name. Two names never have the same one."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", job)
    return name if name == job else f"{name}-{hashlib.sha256(job.encode()).hexdigest()[:_DIGITS]}"


def checkpoint_of(job: str) -> str:
    """Return the default checkpoint of a job."""
    return str(jobs_home() / "checkpoints" / file_name(job))


def dead_letters_checkpoint(checkpoint: str) -> str:
    """Return the checkpoint of a job's dead letters, in the job's: beside that, it may be another job's."""
    return f"{checkpoint.rstrip('/')}/dead-letters"


def sources_of(checkpoint: str) -> int | None:
    """Return the number of sources in a checkpoint's last batch. None without one, or on other file systems.

    # Facts (OffsetSeqLog, Spark 4.0 to 4.3): an entry has a line of its version, one of metadata, and one
    # for each source of the query's plan. Spark does not start a query that has another number of them.
    """
    folder, last = local_folder(checkpoint), last_batch(checkpoint)
    if folder is None or last is None or last < 0:
        return None
    return len((folder / _OFFSETS / str(last)).read_text(encoding="utf-8").splitlines()) - 2


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The record of a job that was started on this machine.

    Parameters
    ----------
    sources : list of str
        What its sources read.
    stateful : list of str
        The kinds of its steps with state.
    state : list of str
        What the state of each of them depends on. Empty in the records of earlier releases.
    types : list of str
        The types of the fields of those whose state we keep: Spark compares only those that it keeps itself.
    """

    job: str
    checkpoint: str
    pid: int
    started_ms: int
    explanation: str
    sources: list[str] = field(default_factory=list)
    stateful: list[str] = field(default_factory=list)
    state: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)

    def check_pipeline(self) -> None:
        """Raise an error if the checkpoint is of another job, or of another pipeline of this name.

        Raises
        ------
        RocketMQError
            The checkpoint has batches, but of another job, or no source in common, or other steps that keep
            state, or steps that keep it of something else.
        """
        folder = local_folder(self.checkpoint)
        if folder is None or not any((folder / _OFFSETS).glob("[0-9]*")):
            return
        place = folder.resolve()
        records = [each for each in jobs() if (at := local_folder(each.checkpoint)) and at.resolve() == place]
        before = max(records, key=lambda each: each.started_ms, default=self)
        if before.job != self.job:
            raise RocketMQError(
                f"the checkpoint is that of the job {before.job!r}, so the job {self.job!r} would continue "
                "from its offsets: give each job a separate folder",
                checkpoint=self.checkpoint,
            )
        if not before.sources:
            return
        shared = _names(before.sources) & _names(self.sources)
        if len(before.sources) != len(self.sources) or not shared or before.stateful != self.stateful:
            raise RocketMQError(
                f"another pipeline ran as the job {self.job!r}, and this one cannot continue from its "
                "checkpoint: each pipeline needs its own name (to begin again, remove the folder)",
                checkpoint=self.checkpoint,
                read_before=", ".join(before.sources),
                reads=", ".join(self.sources),
            )
        if before.state and before.state != self.state:
            was, now = next(pair for pair in zip(before.state, self.state, strict=True) if len(set(pair)) > 1)
            raise RocketMQError(
                f"the job {self.job!r} has changed: the state in its checkpoint is that of {was!r}, and "
                f"would be taken for that of {now!r}. Give the changed pipeline its own name (to begin "
                "again, remove the folder)",
                checkpoint=self.checkpoint,
            )
        if before.types and before.types != self.types:
            raise RocketMQError(
                f"the fields of the job {self.job!r} have other types now than in the state of its "
                "checkpoint: give them those of before, or the changed pipeline its own name (to begin "
                "again, remove the folder)",
                checkpoint=self.checkpoint,
                types_before="; ".join(before.types),
                types="; ".join(self.types),
            )

    def is_running(self) -> bool:
        """Whether a process holds the job's lock."""
        folder = local_folder(self.checkpoint)
        return folder is not None and is_locked(folder / _LOCK)

    def write(self) -> None:
        """Register the job."""
        with replacing(_record_file(self.job, "json")) as file:
            # A release that does not compare types does not know their field either.
            values = {name: value for name, value in asdict(self).items() if name != "types" or value}
            file.write_text(json.dumps(values), encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return the record in a file, which a later release may have written with more fields."""
        found, known = json.loads(file.read_text(encoding="utf-8")), {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in found.items() if name in known})


def _names(sources: list[str]) -> set[str]:
    return {name for source in sources for name in source.split(",")}


def jobs() -> list[JobRecord]:
    """Return the jobs that were started on this machine, by name."""
    return [JobRecord.read(file) for file in sorted((jobs_home() / "jobs").glob("*.json"))]


def find_job(name: str) -> JobRecord:
    """Return a job by its name.

    Raises
    ------
    OptionError
        The job does not exist.
    """
    file = _record_file(name, "json")
    if not file.exists():
        known = ", ".join(record.job for record in jobs()) or "none"
        raise OptionError(f"there is no job {name!r} on this machine; known jobs: {known}")
    return JobRecord.read(file)


def request_stop(job: str) -> None:
    """Request a job to stop after its batch. The process that runs it polls for this request."""
    _record_file(job, "stop").touch()


def take_stop_request(job: str) -> bool:
    """Return whether a stop was requested, and clear the request."""
    try:
        _record_file(job, "stop").unlink()
    except FileNotFoundError:
        return False
    return True


def _record_file(job: str, ending: str) -> Path:
    return jobs_home() / "jobs" / f"{file_name(job)}.{ending}"


@contextlib.contextmanager
def job_lock(job: str, checkpoint: str, *, standby: bool, clock: Clock) -> Iterator[None]:
    """Hold a job's lock, which is in its checkpoint. The system releases it if the process dies.

    Parameters
    ----------
    standby : bool
        Wait for the lock without a limit, until this process is interrupted. Otherwise another holder is an
        error.

    Raises
    ------
    RocketMQError
        Another process runs the job.
    """
    folder = local_folder(checkpoint)
    if folder is None:
        yield  # on shared storage Spark itself detects it, in the offset log
        return
    deadline = Deadline(clock, _LAST_RUN_MS)
    while (lock := try_file_lock(folder / _LOCK)) is None:
        if not standby and deadline.expired:
            raise RocketMQError(
                f"the job {job!r} is already running, and a second process would not share its "
                "queues: use elastic=True in all instances to share them, standby=True to wait and "
                "take over, or another name for another job",
                checkpoint=checkpoint,
            )
        clock.sleep(_POLL_S)
    with lock:
        yield


def take_job_lock(checkpoint: str) -> contextlib.AbstractContextManager[object] | None:
    """Take a job's lock in a local checkpoint, or return None if another process holds it."""
    folder = local_folder(checkpoint)
    assert folder is not None
    return try_file_lock(folder / _LOCK)
