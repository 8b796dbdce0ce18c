"""Connections to databases, whose errors say what failed and contain no password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.spark.stores.database_url import parse_url, shown_url

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["connected"]


@contextmanager
def connected(url: str, *, advice: str) -> Iterator[sa.Connection]:
    """Connect to a database.

    Parameters
    ----------
    url : str
        SQLAlchemy's.
    advice : str
        What to check if the database refuses a statement.

    Raises
    ------
    OptionError
        The URL is invalid, or the database's driver is missing.
    RocketMQError
        The database does not answer, or refuses a statement.
    """
    import sqlalchemy as sa  # noqa: PLC0415 - an extra

    parsed = parse_url(url)
    shown = shown_url(parsed)
    try:
        engine = sa.create_engine(parsed, poolclass=sa.NullPool)
    except ModuleNotFoundError as error:
        raise OptionError(f"the database needs its driver in Python: pip install {error.name}") from error
    except sa.exc.ArgumentError as error:
        raise OptionError(f"SQLAlchemy has no such database: {_reason(error, parsed)}", url=shown) from None
    try:
        # Drivers raise their own errors for parameters that they do not know.
        try:
            connection = engine.connect()
        except (sa.exc.SQLAlchemyError, TypeError, ValueError) as error:
            raise RocketMQError(
                f"the database does not answer: {_reason(error, parsed)}; check the URL, and that the server "
                "runs",
                url=shown,
            ) from None
        with connection:
            try:
                yield connection
            except sa.exc.SQLAlchemyError as error:
                raise RocketMQError(
                    f"the database refuses a statement: {_reason(error, parsed)}; {advice}", url=shown
                ) from error
    finally:
        engine.dispose()


def _reason(error: Exception, url: sa.URL) -> str:
    """Return what the driver says, in one line."""
    text = " ".join(str(getattr(error, "orig", None) or error.args[0]).split())
    return text.replace(url.password, "***") if url.password else text
