"""Connections to databases, whose errors say what failed and contain neither passwords nor rows."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.spark.stores.database_url import parse_url, shown_url

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["connected", "database_errors", "first_line", "open_connection", "open_engine"]

_LOG: Final = logging.getLogger(__name__)

_RESTART_MS: Final = 60_000
"""The time that a server has to restart."""
_POLL_S: Final = 0.5

_NOT_UP: Final = re.compile(
    "Is the server running|the database system is |server closed the connection unexpectedly"  # libpq's
    r"|^\((2003|2013|1053),"  # MySQL's: not reached, lost before it greets, and stopping
)
_UNKNOWN_HOST: Final = re.compile(r"\[Errno -")
"""Of Python's errors for names, which are negative numbers."""

_LOCK_WAITS: Final = {
    "postgresql": "SELECT set_config('lock_timeout', '60s', true) "
    "WHERE current_setting('lock_timeout') = '0'",
    "mysql": "SET SESSION lock_wait_timeout = LEAST(@@SESSION.lock_wait_timeout, 60)",
}
"""By database: what has a transaction wait for the locks of others for a minute at most. Without it,
PostgreSQL waits without a limit, and MySQL for a year if a table is being altered (50 s for rows). For SQLite
it is a parameter of the driver."""

_IDLE_S, _INTERVAL_S, _COUNT, _UNANSWERED_MS = 60, 10, 6, 120_000
"""Two minutes after a host is gone, a statement fails. By the defaults of the system, one that waits for its
answer fails after more than two hours, and one that is being sent, which is not probed, after a quarter of an
hour."""

_PROBES: Final = {
    "keepalives_idle": _IDLE_S,
    "keepalives_interval": _INTERVAL_S,
    "keepalives_count": _COUNT,
    "tcp_user_timeout": _UNANSWERED_MS,
}
"""Of libpq."""

_SOCKET_OPTIONS: Final = {
    "TCP_KEEPIDLE": _IDLE_S,
    "TCP_KEEPINTVL": _INTERVAL_S,
    "TCP_KEEPCNT": _COUNT,
    "TCP_USER_TIMEOUT": _UNANSWERED_MS,
}
"""The same for PyMySQL, which has no parameters for them, where the system has them."""

_PARAMETERS: Final[Mapping[str, Mapping[str, int]]] = {
    "sqlite": {"timeout": 60},  # it is 5 s else: shorter than a batch of another job
    "sqlite+pysqlite": {"timeout": 60},
    "postgresql": _PROBES,
    "postgresql+psycopg": _PROBES,
    "postgresql+psycopg2": _PROBES,
}
"""Of connections, by SQLAlchemy's name of the driver, unless the URL has them."""


@contextmanager
def connected(url: str, *, advice: str, clock: Clock | None = None) -> Iterator[sa.Connection]:
    """Connect to a database.

    Parameters
    ----------
    url : str
        SQLAlchemy's.
    advice : str
        What to check if the database refuses a statement.
    clock : Clock, optional
        See `open_connection`.

    Raises
    ------
    OptionError
        The URL is invalid, or the database's driver is missing.
    RocketMQError
        The database does not answer, or refuses a statement.
    """
    engine = open_engine(url)
    opened = open_connection(engine, clock)
    with opened as connection, database_errors(engine.url, advice=advice):
        yield connection


def open_engine(url: str) -> sa.Engine:
    """Return SQLAlchemy's engine of a database. The text of its errors has no rows.

    It keeps no connection: between two batches, the server may restart, or a firewall forget it. Its
    transactions wait for the locks of others for a minute at most, or for PostgreSQL's own ``lock_timeout``,
    or for the ``timeout`` of SQLite's URL. A host that is gone is known after two minutes.

    Raises
    ------
    OptionError
        The URL is invalid, or the database's driver is missing.
    """
    import sqlalchemy as sa  # noqa: PLC0415 - an extra

    parsed = parse_url(url)
    defaults = _PARAMETERS.get(parsed.drivername, {})
    given = {name: value for name, value in defaults.items() if name not in parsed.query}
    try:
        engine = sa.create_engine(parsed, hide_parameters=True, poolclass=sa.NullPool, connect_args=given)
    except ModuleNotFoundError as error:
        raise OptionError(f"the database needs its driver in Python: pip install {error.name}") from error
    except sa.exc.ArgumentError as error:
        raise OptionError(
            f"SQLAlchemy has no such database: {_reason(error, parsed)}", url=shown_url(parsed)
        ) from None
    name = "mysql" if engine.dialect.name == "mariadb" else engine.dialect.name
    if (limit := _LOCK_WAITS.get(name)) is not None:
        sa.event.listen(engine, "begin", partial(_execute, limit))
    if engine.dialect.driver == "pymysql":
        sa.event.listen(engine, "connect", _probe_host)
    return engine


def _probe_host(connection: Any, _: object) -> None:
    used: socket.socket = connection._sock  # noqa: SLF001 - PyMySQL has no other way
    if used.family in (socket.AF_INET, socket.AF_INET6):
        for name, value in _SOCKET_OPTIONS.items():
            if (option := getattr(socket, name, None)) is not None:
                used.setsockopt(socket.IPPROTO_TCP, option, value)


def _execute(statement: str, connection: sa.Connection) -> None:
    connection.exec_driver_sql(statement)


def open_connection(engine: sa.Engine, clock: Clock | None = None) -> sa.Connection:
    """Return a connection to a database.

    Parameters
    ----------
    engine : sqlalchemy.Engine
    clock : Clock, optional
        By which a server that is not up is waited for, for a minute: it has answered before, and restarts.

    Raises
    ------
    RocketMQError
        The database does not answer.
    """
    import sqlalchemy as sa  # noqa: PLC0415 - an extra

    deadline = None if clock is None else Deadline(clock, _RESTART_MS)
    waited = False
    while True:
        # Drivers raise their own errors for parameters that they do not know.
        try:
            return engine.connect()
        except (sa.exc.SQLAlchemyError, TypeError, ValueError) as error:
            reason = _reason(error, engine.url)
            if clock is None or deadline is None or deadline.expired or not _is_not_up(error, reason):
                raise RocketMQError(
                    f"the database does not answer: {reason}; check the URL, and that the server runs",
                    url=shown_url(engine.url),
                ) from None
        if not waited:
            _LOG.warning("the database does not answer, waiting for it: %s", reason)
        waited = True
        clock.sleep(_POLL_S)


def _is_not_up(error: Exception, reason: str) -> bool:
    """Whether no server was there to answer. One that refuses the user or database is not asked again."""
    import sqlalchemy as sa  # noqa: PLC0415 - an extra

    known = isinstance(error, sa.exc.OperationalError) and _UNKNOWN_HOST.search(reason) is None
    refused = "FATAL" in reason and "the database system is " not in reason
    return known and not refused and _NOT_UP.search(reason) is not None


@contextmanager
def database_errors(url: sa.URL, *, advice: str, **facts: Any) -> Iterator[None]:
    """Raise SQLAlchemy's errors as this package's.

    Parameters
    ----------
    url : sqlalchemy.URL
    advice : str
        What to do if the database refuses a statement.
    **facts : Any
        More facts of the error.

    Raises
    ------
    RocketMQError
        The database refuses a statement, or its server has ended the connection.
    """
    import sqlalchemy as sa  # noqa: PLC0415 - an extra

    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        told = f"the database refuses a statement: {first_line(error)}; {advice}"
        if isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated:
            # Of a lost commit, nothing is known: neither the rows nor a rollback are to be named.
            told = (
                f"the connection to the database is lost: {first_line(error)}; start the query again when "
                "the server runs"
            )
        # The text of the cause may have a row, too.
        raise RocketMQError(told, url=shown_url(url), **facts) from None


def first_line(error: sa.exc.SQLAlchemyError) -> str:
    """Return what a driver says about a statement. PostgreSQL's next lines may have the row."""
    text = str(getattr(error, "orig", None) or error.args[0])
    return text.strip().partition("\n")[0]


def _reason(error: Exception, url: sa.URL) -> str:
    """Return what the driver says about a connection, in one line."""
    text = " ".join(str(getattr(error, "orig", None) or error.args[0]).split())
    return text.replace(url.password, "***") if url.password else text
