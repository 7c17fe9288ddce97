"""Databases for what runs in processes of its own: SQLite, or on the PostgreSQL of the run.

The run's own database comes from pytest-django; where `DATABASE_URL` names a PostgreSQL server,
further ones are made on it.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql


class Database:
    """A new, empty database.

    Attributes:
        url: As `DATABASE_URL` takes it.
    """

    def __init__(self, folder: Path) -> None:
        self.server = os.environ.get("DATABASE_URL", "")
        self.name = f"shoal_{uuid.uuid4().hex[:12]}"
        self.is_postgresql = self.server.startswith("postgres")
        if not self.is_postgresql:
            self.file = folder / "db.sqlite3"
            self.url = f"sqlite:///{self.file}"
            return
        self.url = f"{self.server.rpartition('/')[0]}/{self.name}"
        self._on_server("CREATE DATABASE {}")

    def row(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row of a query in which `?` stands for a value."""
        if self.is_postgresql:
            with psycopg.connect(self.url) as connection:
                return connection.execute(query.replace("?", "%s").encode(), values).fetchone()
        with closing(sqlite3.connect(self.file, timeout=30)) as connection:
            found: tuple[Any, ...] | None = connection.execute(query, values).fetchone()
            return found

    def drop(self) -> None:
        """Remove it, also while somebody is connected."""
        if self.is_postgresql:
            self._on_server("DROP DATABASE IF EXISTS {} WITH (FORCE)")

    def _on_server(self, statement: str) -> None:
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(self.name)))
