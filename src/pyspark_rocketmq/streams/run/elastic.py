"""Instances of one job that share its work: one leads, the others contribute cores, and one takes over.

The leader runs Spark's standalone master next to its driver. Each instance, including the leader, runs a
worker that offers its cores there. All of them listen on loopback only and require the secret in a file that
only this user can read.

Facts: standalone masters assign the cores of a worker that joins later immediately to an application without
``spark.cores.max`` (``Master.schedule``). An executor ends when its driver or its worker ends. After ten
failed executors a master removes an application, unless ``spark.deploy.maxExecutorRetries`` is negative.
Spark 4.3.0.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.devcluster.system.process import ChildProcess, Watchdog
from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.spark.filesystem import local_folder
from pyspark_rocketmq.streams.compile.compiler import is_bounded
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.run.job_registry import (
    file_name,
    jobs_home,
    replacing,
    take_job_lock,
)

__all__ = ["Instance", "Meeting", "check_elastic", "leading"]

_LOG: Final = logging.getLogger(__name__)
_HOST: Final = "127.0.0.1"
_DEPLOY: Final = "org.apache.spark.deploy"
_ANY_PORT: Final = ("--port", "0", "--webui-port", "0")
_STARTED: Final = r"Starting Spark master at (spark://\S+)"
_START_MS: Final = 120_000
_STOP_S: Final = 15.0
_POLL_S: Final = 0.5
_RESTART_MS: Final = 5_000
_MEMORY_MIB: Final = 1024
_PRIVATE: Final = 0o600


def check_elastic(spark: SparkSession | None, plan: p.Plan, cores: int) -> None:
    """Raise an error for settings that an elastic job does not support.

    Raises
    ------
    PlanError
        A session already exists, the sources are bounded, or the plan requests one small process. Or this is
        Windows, where Spark has no program to start a master.
    """
    if os.name == "nt":
        raise PlanError("elastic=True needs Spark's standalone master, which Windows does not have")
    if cores < 1:
        raise PlanError(f"an instance must lend at least one core, not {cores}")
    if spark is not None or SparkSession.getActiveSession() is not None:
        raise PlanError("elastic=True creates its own session and master: start the job without a session")
    if is_bounded(plan):
        raise PlanError("elastic=True is for streams: this job's sources are bounded")
    if plan.footprint is not None:
        raise PlanError(f"{plan.footprint.name} uses one process on one core, which cannot be elastic")


@contextlib.contextmanager
def leading(job: str, checkpoint: str, *, cores: int, clock: Clock) -> Iterator[SparkSession]:
    """Help the job's leader until none exists, then lead in this block, with a session of all instances."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    with Instance(job, checkpoint, cores=cores, clock=clock) as instance:
        instance.help_until_leading()
        builder = SparkSession.builder.appName(f"pyspark-rocketmq streams {job}")
        yield instance.lead(builder, partitions=os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Meeting:
    """The meeting point of a job's instances: the leader's master and its secret."""

    master: str
    secret: str

    def __repr__(self) -> str:
        return f"Meeting(master={self.master!r})"

    def write(self, job: str) -> None:
        """Publish it to this user's processes."""
        with replacing(_meeting_file(job)) as file:
            _write_private(file, json.dumps(asdict(self)))

    @classmethod
    def find(cls, job: str) -> Self | None:
        """Return the last published meeting point of a job's instances, or None."""
        try:
            return cls(**json.loads(_meeting_file(job).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def forget(self, job: str) -> None:
        """Remove it, unless another leader has published a different one."""
        if self.find(job) == self:
            _meeting_file(job).unlink(missing_ok=True)


class Instance:
    """The instance of an elastic job in this process. A context manager that ends its Spark processes.

    Parameters
    ----------
    job : str
    checkpoint : str
        On a local file system. The holder of the lock in it is the leader.
    cores : int
        The number of cores that this instance contributes.
    clock : Clock
    """

    def __init__(self, job: str, checkpoint: str, *, cores: int, clock: Clock) -> None:
        if local_folder(checkpoint) is None:
            raise PlanError(
                f"elastic instances share a lock in the checkpoint, which {checkpoint} cannot hold: use a "
                "local folder, or a standing cluster (docs/deployment.md)"
            )
        self._job = job
        self._checkpoint = checkpoint
        self._cores = cores
        self._clock = clock
        self._folder = jobs_home() / "elastic" / f"{file_name(job)}-{os.getpid()}"
        self._held = contextlib.ExitStack()
        self._watchdog: Watchdog | None = None
        self._worker: ChildProcess | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._watchdog = self._held.enter_context(Watchdog())
        self._watchdog.remove(self._folder)  # also at a normal end
        self._held.callback(self._stop_worker)
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def help_until_leading(self) -> None:
        """Contribute this instance's cores to the job's leader until none exists, then hold the job's lock.

        Waits without a limit, until this process is interrupted.
        """
        joined: Meeting | None = None
        pause: Deadline | None = None
        while (lock := take_job_lock(self._checkpoint)) is None:
            meeting = Meeting.find(self._job)
            running = self._worker is not None and self._worker.is_running
            if (
                meeting is not None
                and (meeting != joined or not running)
                and (pause is None or pause.expired)
            ):
                self._stop_worker()
                self._start_worker(meeting)
                joined, pause = meeting, Deadline(self._clock, _RESTART_MS)
            self._clock.sleep(_POLL_S)
        self._held.enter_context(lock)
        self._stop_worker()

    def lead(self, builder: SparkSession.Builder, partitions: int) -> SparkSession:
        """Start a master and this instance's worker, and return a session there."""
        meeting = self._start_master()
        meeting.write(self._job)
        self._held.callback(meeting.forget, self._job)
        self._start_worker(meeting)
        self._held.enter_context(self._keeping_worker(meeting))
        # Passed to the running JVM: its start arguments are on its command line, which all users can read.
        SparkContext._ensure_initialized()  # noqa: SLF001
        settings = {
            "spark.master": meeting.master,
            "spark.authenticate": "true",
            "spark.authenticate.secret": meeting.secret,
            "spark.driver.host": _HOST,
            "spark.driver.bindAddress": _HOST,
            "spark.executor.memory": f"{_MEMORY_MIB}m",
            "spark.locality.wait": "0s",  # otherwise tasks wait for the executor that has the state
            "spark.sql.shuffle.partitions": str(partitions),
            "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        self._held.callback(session.stop)
        return session

    def _start_master(self) -> Meeting:
        secret = secrets.token_urlsafe(32)
        master = self._process("master", "master.Master", secret, "--host", _HOST, *_ANY_PORT)
        master.start()
        self._held.callback(master.terminate, _STOP_S)
        master.wait_for_log(_STARTED, Deadline(self._clock, _START_MS))
        found = re.findall(_STARTED, master.log_file.read_text(errors="replace"))
        return Meeting(found[-1], secret)

    def _start_worker(self, meeting: Meeting) -> None:
        room = ("-c", str(self._cores), "-m", f"{_MEMORY_MIB}M", "-d", str(self._folder / "work"))
        place = ("--host", _HOST, *_ANY_PORT, *room, meeting.master)
        self._worker = self._process("worker", "worker.Worker", meeting.secret, *place)
        self._worker.start()

    @contextlib.contextmanager
    def _keeping_worker(self, meeting: Meeting) -> Iterator[None]:
        """Restart this instance's worker if it ends, because it may be the job's only one."""
        stop = threading.Event()

        def keep() -> None:
            while not stop.wait(_RESTART_MS / 1_000):
                if self._worker is not None and not self._worker.is_running:
                    try:
                        self._start_worker(meeting)
                    except OSError as error:  # such as no memory for a process now
                        _LOG.warning("the worker of %s does not start: %s", self._job, error)

        keeper = threading.Thread(target=keep, name=f"worker of {self._job}", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            stop.set()
            keeper.join()

    def _stop_worker(self) -> None:
        if self._worker is not None:
            self._worker.terminate(_STOP_S)
            self._worker = None

    def _process(self, name: str, program: str, secret: str, *arguments: str) -> ChildProcess:
        properties = self._folder / f"{name}.properties"
        _write_private(
            properties,
            "spark.authenticate true\n"
            f"spark.authenticate.secret {secret}\n"
            "spark.deploy.maxExecutorRetries -1\n"
            "spark.master.rest.enabled false\n"
            "spark.ui.killEnabled false\n"
            "spark.master.ui.decommission.allow.mode DENY\n",  # otherwise any user of this machine may
        )
        home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
        assert self._watchdog is not None
        return ChildProcess(
            name,
            [
                f"{home}/bin/spark-class",
                f"{_DEPLOY}.{program}",
                "--properties-file",
                str(properties),
                *arguments,
            ],
            log_file=self._folder / f"{name}.log",
            env={
                "SPARK_LOCAL_IP": _HOST,
                "SPARK_DAEMON_MEMORY": "128m",
                # Executors can import what this process can import.
                "PYTHONPATH": os.pathsep.join(place or str(Path.cwd()) for place in sys.path),
            },
            watchdog=self._watchdog,
            clock=self._clock,
        )


def _meeting_file(job: str) -> Path:
    return jobs_home() / "elastic" / f"{file_name(job)}.json"


def _write_private(file: Path, text: str) -> None:
    """Write a file that only this user can read from its creation on."""
    file.unlink(missing_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(text)
