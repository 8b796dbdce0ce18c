"""What an example has stored in its table ``orders``."""

from __future__ import annotations

from collections import Counter

import sqlalchemy as sa


class Results:
    """What an example has stored."""

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)

    def rows(self, statement: str) -> list[tuple]:
        with self._engine.connect() as connection:
            try:
                return [tuple(row) for row in connection.execute(sa.text(statement))]
            except (sa.exc.OperationalError, sa.exc.ProgrammingError):
                return []  # the table is not there yet

    def bodies(self) -> Counter[str]:
        return Counter(body for (body,) in self.rows("SELECT body FROM orders"))

    def close(self) -> None:
        self._engine.dispose()
