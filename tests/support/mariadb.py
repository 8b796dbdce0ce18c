"""A real MariaDB, of the system's package, as a child process on 127.0.0.1."""

from __future__ import annotations

import getpass
import itertools
import os
import random
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import sqlalchemy as sa

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.devcluster.system.ports import free_port
from pyspark_rocketmq.devcluster.system.process import ChildProcess, Watchdog

USER, PASSWORD = "spark", "hidden-maria"

_SMALL: Final = (
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=8M",
    "--innodb-use-native-aio=0",
    "--performance-schema=OFF",
)


class MariaDBServer:
    """A MariaDB with a data directory of its own, reached by `USER` over TCP.

    Parameters
    ----------
    time_zone : str
        The server's: what a connection has that says nothing.
    """

    def __init__(self, time_zone: str = "+05:00") -> None:
        self._time_zone = time_zone
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mariadb-")))
            watchdog = stack.enter_context(Watchdog())
            watchdog.remove(folder)
            settings = _prepare(folder)
            self.port = free_port(random.Random())
            server = ChildProcess(
                "MariaDB",
                (
                    *(_program("mariadbd"), *settings),
                    *("--bind-address=127.0.0.1", f"--port={self.port}", "--skip-name-resolve"),
                    *(f"--socket={folder}/socket", f"--pid-file={folder}/pid"),
                    *(f"--init-file={folder}/users.sql", f"--default-time-zone={self._time_zone}"),
                ),
                log_file=folder / "log",
                env={},
                watchdog=watchdog,
            )
            server.start()
            stack.callback(server.terminate, 60)
            server.wait_for_log("ready for connections", Deadline(SYSTEM_CLOCK, 120_000))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def fresh_database(self) -> str:
        """Create a database and return its URL."""
        name = f"test_{next(self._numbers)}"
        url = sa.URL.create("mysql+pymysql", USER, PASSWORD, "127.0.0.1", self.port)
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            connection.execute(sa.text(f"CREATE DATABASE {name}"))
        return url.set(database=name).render_as_string(hide_password=False)


def _prepare(folder: Path) -> tuple[str, ...]:
    """Make the system tables, and return what the server is to be started with."""
    settings = ("--no-defaults", f"--datadir={folder}/data", f"--user={getpass.getuser()}", *_SMALL)
    install = (_program("mariadb-install-db"), *settings, "--auth-root-authentication-method=normal")
    done = subprocess.run(
        (*install, "--skip-test-db"), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    (folder / "users.sql").write_text(
        f"CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
        f"GRANT ALL ON *.* TO '{USER}'@'127.0.0.1';\n"
    )
    return settings


def _program(name: str) -> str:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    found = shutil.which(name, path=path)
    assert found is not None, (
        f"{name} is missing: `make mariadb` installs MariaDB as root on Debian; "
        "elsewhere install the package mariadb-server with the system's package manager"
    )
    return found
