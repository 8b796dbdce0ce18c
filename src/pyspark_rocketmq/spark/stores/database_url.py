"""JDBC URLs as SQLAlchemy's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.errors import OptionError

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["WRITABLE", "database_url", "parse_url", "shown_url"]

_JDBC: Final = {
    "jdbc:mysql://": "mysql+pymysql://",
    "jdbc:mariadb://": "mariadb+pymysql://",
    "jdbc:postgresql://": "postgresql+psycopg://",
    "jdbc:sqlite:": "sqlite:///",
}

WRITABLE: Final = tuple(_JDBC)
"""How the JDBC URLs begin of the databases that this package writes to."""

_ALREADY_SO: Final = frozenset(
    {
        *(("characterencoding", name) for name in ("utf8", "utf-8", "utf8mb4")),
        ("rewritebatchedstatements", "true"),
        ("useunicode", "true"),
        ("usessl", "false"),
    }
)
"""Parameters of MySQL's Java driver that ask for what PyMySQL does without them."""


def database_url(url: str, user: str | None, password: str | None) -> str:
    """Return the SQLAlchemy URL for a JDBC or SQLAlchemy URL.

    Raises
    ------
    OptionError
        The URL is invalid, a JDBC URL for MySQL has a parameter that PyMySQL does not support, or
        SQLAlchemy is missing.
    """
    given = next((prefix for prefix in _JDBC if url.startswith(prefix)), None)
    made = parse_url(url if given is None else _JDBC[given] + url.removeprefix(given))
    if given is not None:
        made = _move_parameters(made)
    if user:
        made = made.set(username=user)
    if password:
        made = made.set(password=password)
    return made.render_as_string(hide_password=False)


def parse_url(url: str) -> sa.URL:
    """Return a SQLAlchemy URL.

    Raises
    ------
    OptionError
        It is none, or SQLAlchemy is missing. The error does not contain the URL, whose password is in an
        unknown place.
    """
    try:
        import sqlalchemy as sa  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise OptionError(
            'databases need SQLAlchemy: pip install "pyspark-rocketmq[sql]", and the driver of the database, '
            "such as psycopg or pymysql"
        ) from error

    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):  # of a port that is no number
        parsed = None
    if parsed is None or _has_part_of_password(parsed):
        raise OptionError(
            "the URL of the database is neither JDBC's (of MySQL, MariaDB, PostgreSQL or SQLite) nor "
            "SQLAlchemy's: dialect+driver://user:password@host:port/database, with %40 for an @ in the "
            "password, %3A for a : and %2F for a /"
        )
    return parsed


def _has_part_of_password(url: sa.URL) -> bool:
    """Return whether an @ in a password ends it too early: what follows is taken for the host or database."""
    database = url.database if url.host or url.username else None  # SQLite's is a path
    return "@" in f"{url.host or ''}{database or ''}"


def shown_url(url: sa.URL) -> str:
    """Return a URL for messages: without the password, which its parameters may contain, too."""
    return url.set(query={}).render_as_string(hide_password=True)


def _move_parameters(url: sa.URL) -> sa.URL:
    """Return a URL with its JDBC parameters moved to where SQLAlchemy expects them."""
    for name, value in url.query.items():
        match name:
            case "user":
                url = url.set(username=str(value))
            case "password":
                url = url.set(password=str(value))
            case _ if not url.drivername.endswith("+pymysql"):
                continue
            case _ if (name.lower(), str(value).lower()) not in _ALREADY_SO:
                raise OptionError(
                    "this parameter of the Java driver is not supported: remove it, or use a SQLAlchemy "
                    "URL with PyMySQL's parameters, such as mysql+pymysql://host/db?ssl_ca=/etc/ca.pem",
                    parameter=name,
                )
        url = url.difference_update_query([name])
    return url
