"""The coordinator's store: SQLite by default, PostgreSQL by URL, through the same code.

Every change is one transaction that is on the disk when it returns: SQLite runs with a write-ahead
log and ``synchronous=FULL``. Opening the store migrates it. All of it blocks.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError

from privacy.foundation.full_disk import FullDiskError
from server.config.store import StoreSettings
from server.records.tables import leadership, runs
from server.records.tenure import ALONE, Tenure

_MIGRATIONS = Path(__file__).parent / "migrations"
_BUSY_MS = 30_000
SILENCE_MS = 5_000
"""Milliseconds after which PostgreSQL ends a session that holds a lock and falls silent."""
_WRITE = "sotto_write"
_POSTGRESQL_FULL = "53100"
# Any number that no other program uses in the same database.
_POSTGRESQL_LOCK = 0x736F74746F


class StoreError(RuntimeError):
    """Raised when the store cannot be opened or does not belong to this run."""


class StoreFullError(StoreError, FullDiskError):
    """Raised when the disk has no room for a transaction; nothing of it is kept."""


class Store:
    """Transactions on the coordinator's tables.

    Attributes:
        tenure: The turn in which this process writes; ``lead`` begins it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.tenure = ALONE

    def lead(self, tenure: Tenure) -> None:
        """Write in this turn alone from now on: no transaction outlives it."""
        self.tenure = tenure

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Run one durable transaction, not committed if the block raises; writers take turns.

        Raises:
            LeadershipLostError: If another process leads, or may lead by now.
            StoreFullError: If the disk is full.
            OSError: If this process has too many files open.
        """
        self.tenure.check()
        options = {_WRITE: True}
        try:
            with (
                self._engine.connect().execution_options(**options) as connection,
                connection.begin(),
            ):
                # Under the writers' lock: whoever raises the term waits until this is committed.
                if self.tenure.term:
                    _check_term(connection, self.tenure)
                yield connection
        except OperationalError as error:
            raise _shortage_of(error) or error from None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Read what is committed; one statement sees one state."""
        try:
            with self._engine.connect() as connection, connection.begin():
                yield connection
        except OperationalError as error:
            raise _shortage_of(error) or error from None

    def close(self) -> None:
        """Close every connection; the write-ahead log is folded into the file."""
        self._engine.dispose()


def open_store(settings: StoreSettings) -> Store:
    """Open the store and bring its tables up to date.

    Raises:
        StoreError: If it cannot be opened, or was written by a newer version of sotto.
    """
    try:
        engine = _make_engine(settings)
        # Two coordinators that start at one time take turns here too; SQLite's lock does it itself.
        options = {_WRITE: settings.sqlite_path is None}
        with engine.connect().execution_options(**options) as connection:
            _migrate(connection)
            connection.commit()
    except ModuleNotFoundError as error:
        raise StoreError(f"store.url needs a driver: {error}; install it beside sotto") from None
    except (ArgumentError, NoSuchModuleError) as error:
        raise StoreError(f"store.url cannot be used: {error}") from None
    except DBAPIError as error:
        raise StoreError(f"the store cannot be opened: {error.orig}") from None
    except OSError as error:
        raise StoreError(f"the store cannot be opened: {error}") from None
    return Store(engine)


def start_run(store: Store, run: str, seed: int, run_digest: bytes, *, now: float) -> None:
    """Tie an empty store to its run; ``run_digest`` is ``FederationConfig.run_digest``.

    Raises:
        StoreError: If the store already has a run.
    """
    with store.write() as connection:
        if connection.execute(select(runs.c.run)).first() is not None:
            raise StoreError("the store already belongs to a run; choose an empty folder")
        connection.execute(
            runs.insert().values(run=run, seed=seed, schema_sha256=run_digest, created_at=now)
        )


def check_run(store: Store, seed: int, run_digest: bytes) -> str:
    """Return the run's identifier after checking that the settings still fit it.

    Raises:
        StoreError: If there is no run, or the seed, the model or its tensors' roles have changed.
    """
    with store.read() as connection:
        row = connection.execute(select(runs)).first()
    if row is None:
        raise StoreError("the store has no run; make one with `sotto-server init`")
    if row.seed != seed:
        raise StoreError(f"seed must stay {row.seed} while the run lasts, got {seed}")
    if row.schema_sha256 != run_digest:
        raise StoreError(
            f"the model's schema must stay {row.schema_sha256.hex()[:16]}… while the run lasts, "
            f"got {run_digest.hex()[:16]}…; undo the change of [model], [growth] or "
            "[personalisation], or start another run"
        )
    return str(row.run)


def _check_term(connection: Connection, tenure: Tenure) -> None:
    stored = connection.execute(select(leadership.c.term)).scalar()
    if stored != tenure.term:
        tenure.lose(f"another coordinator leads: the term is {stored}, and was {tenure.term} here")


def _shortage_of(error: OperationalError) -> OSError | None:
    """Return what a failed statement lacked, room or a descriptor; None if it failed otherwise."""
    name = getattr(error.orig, "sqlite_errorname", None)
    state = getattr(error.orig, "sqlstate", None)
    if name == "SQLITE_FULL" or state == _POSTGRESQL_FULL:
        return StoreFullError("the disk is full; free some space")
    if name is not None and name.startswith("SQLITE_CANTOPEN"):
        # SQLite does not say why. A process that lacks a descriptor now lacked one then.
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as lacking:
            return lacking
    return None


def _make_engine(settings: StoreSettings) -> Engine:
    path = settings.sqlite_path
    if path is None:
        engine = create_engine(settings.url, pool_pre_ping=True)
        event.listen(engine, "connect", _prepare_postgresql)
        event.listen(engine, "begin", _begin_postgresql)
        return engine
    if not path.exists():
        path.touch(mode=0o600)
    engine = create_engine(settings.url)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


# Any: the driver's own connection, which SQLAlchemy does not type.
def _prepare_postgresql(connection: Any, _record: object) -> None:
    # A process that is stopped in a transaction keeps the writers' lock no longer than this.
    with connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = {SILENCE_MS}")
    connection.commit()


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver's own transactions begin too late to cover a read before a write.
    connection.isolation_level = None
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        f"busy_timeout={_BUSY_MS}",
        # What is deleted is overwritten: a forgotten client is gone from the file too.
        "secure_delete=ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A write transaction takes its lock at once; one that began as a reader could be refused later.
    is_write = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")


def _begin_postgresql(connection: Connection) -> None:
    # The same turn-taking as SQLite's lock, kept until the transaction ends.
    if connection.get_execution_options().get(_WRITE, False):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_POSTGRESQL_LOCK})")


def _is_newest(connection: Connection) -> bool:
    newest = max(path.name[1:5] for path in (_MIGRATIONS / "versions").glob("v*.py"))
    if not inspect(connection).has_table("alembic_version"):
        return False
    held: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return held == newest


def _migrate(connection: Connection) -> None:
    if _is_newest(connection):
        return
    # Migrations begin with a transaction of their own.
    connection.rollback()
    # Imported here: a coordinator whose store is up to date does without these 11 MB.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError:
        newest = ScriptDirectory.from_config(config).get_current_head()
        raise StoreError(
            f"the store was written by a newer sotto than this one, which knows migration "
            f"{newest}; update sotto"
        ) from None
