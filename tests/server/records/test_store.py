import resource
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import insert, make_url, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from server.config.store import StoreSettings
from server.records.store import Store, StoreError, StoreFullError, check_run, open_store, start_run
from server.records.tables import clients, contributions, metadata, tokens
from tests.server.both_stores import on_both_stores
from tests.server.postgresql_cluster import PostgresqlCluster

RUN = "ab" * 16


@on_both_stores
def test_the_migrations_make_the_tables_that_the_code_uses(store: Store) -> None:
    with store.read() as connection:
        difference = compare_metadata(MigrationContext.configure(connection), metadata)

    assert difference == []


def test_a_commit_is_on_the_disk_when_it_returns(store: Store) -> None:
    with store.read() as connection:
        journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
        synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar()
        overwrites = connection.exec_driver_sql("PRAGMA secure_delete").scalar()

    assert (journal, synchronous, overwrites) == ("wal", 2, 1)  # 2 is FULL


def test_only_the_owner_can_read_the_store(store: Store, store_settings: StoreSettings) -> None:
    path = store_settings.sqlite_path

    assert path is not None
    files = [path, *path.parent.glob(f"{path.name}-*")]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


@on_both_stores
def test_an_open_store_can_be_opened_again_without_what_migrates(
    store_settings: StoreSettings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "alembic", None)

    again = open_store(store_settings)

    assert check_run(again, 1, bytes(32)) == RUN
    again.close()


@on_both_stores
def test_a_transaction_that_fails_leaves_nothing(store: Store) -> None:
    with pytest.raises(RuntimeError, match="power cut"), store.write() as connection:
        connection.execute(insert(clients).values(name="a", enrolled_at=1.0))
        raise RuntimeError("power cut")

    with store.read() as connection:
        assert connection.execute(select(clients)).all() == []


@on_both_stores
def test_writers_in_many_threads_wait_for_each_other(store: Store) -> None:
    def enrol(number: int) -> None:
        with store.write() as connection:
            count = len(connection.execute(select(clients.c.name)).all())
            connection.execute(insert(clients).values(name=f"{count}", enrolled_at=float(number)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enrol, range(24)))

    with store.read() as connection:
        names = set(connection.execute(select(clients.c.name)).scalars())
    # Each saw what the one before had written, or two would have had one name.
    assert names == {str(number) for number in range(24)}


@on_both_stores
def test_a_store_belongs_to_one_run(store: Store) -> None:
    with pytest.raises(StoreError, match="already belongs to a run"):
        start_run(store, "cd" * 16, seed=2, run_digest=bytes(32), now=2.0)


@on_both_stores
def test_a_store_without_a_run_is_refused(store_settings: StoreSettings) -> None:
    empty = open_store(store_settings)

    with pytest.raises(StoreError, match="sotto-server init"):
        check_run(empty, 1, bytes(32))
    empty.close()


@on_both_stores
def test_a_run_goes_on_only_with_its_seed_and_its_model(store: Store) -> None:
    with pytest.raises(StoreError, match="seed must stay 1 while the run lasts, got 2"):
        check_run(store, 2, bytes(32))
    with pytest.raises(StoreError, match=r"schema must stay 0000.* got ffff"):
        check_run(store, 1, b"\xff" * 32)


@on_both_stores
def test_a_store_of_a_newer_version_is_refused(store: Store, store_settings: StoreSettings) -> None:
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(StoreError, match=r"newer sotto than this one.* 0006; update sotto"):
        open_store(store_settings)


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"this is not a database, however long it may be" * 100)

    with pytest.raises(StoreError, match="not a database"):
        open_store(StoreSettings(url=f"sqlite:///{path}"))


def test_a_folder_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        open_store(StoreSettings(url=f"sqlite:///{tmp_path / 'missing' / 'store.sqlite'}"))


def test_postgresql_without_its_driver_is_refused_with_a_reason() -> None:
    with pytest.raises(StoreError, match=r"needs a driver: .*pg8000.*; install it"):
        open_store(StoreSettings(url="postgresql+pg8000://nobody@localhost/none"))


@pytest.mark.xdist_group("postgresql")
def test_what_a_url_leaves_out_postgresqls_library_takes_from_the_environment(
    postgresql: PostgresqlCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = make_url(postgresql.database().url)
    for variable, value in (
        ("PGHOST", str(database.query["host"])),
        ("PGDATABASE", str(database.database)),
        ("PGUSER", str(database.username)),
    ):
        monkeypatch.setenv(variable, value)

    opened = open_store(StoreSettings(url="postgresql+psycopg://"))

    with opened.read() as connection:
        assert connection.exec_driver_sql("SELECT current_database()").scalar() == database.database
    opened.close()


def test_the_tables_can_be_made_in_postgresql() -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call] # SQLAlchemy leaves it untyped

    tables = [
        str(CreateTable(table).compile(dialect=dialect)) for table in metadata.tables.values()
    ]
    indexes = [str(CreateIndex(index).compile(dialect=dialect)) for index in contributions.indexes]

    assert any("blob_bytes BIGINT" in text for text in tables)
    assert sum("UNIQUE" in text and "WHERE state <> 'expired'" in text for text in indexes) == 2


@pytest.mark.parametrize(
    "store_settings",
    [pytest.param("postgresql", marks=pytest.mark.xdist_group("postgresql"))],
    indirect=True,
)
def test_a_full_disk_of_postgresql_is_told_as_one(store: Store) -> None:
    full = "DO $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$"

    with pytest.raises(StoreFullError, match="free some space"), store.write() as connection:
        connection.exec_driver_sql(full)


def test_a_full_disk_keeps_nothing_of_the_transaction(store: Store) -> None:
    with store.read() as connection:
        page_count = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        # As if the disk ended here; the engine lends the same connection again.
        connection.exec_driver_sql(f"PRAGMA max_page_count={page_count + 1}")

    with pytest.raises(StoreFullError, match="free some space"), store.write() as connection:
        connection.execute(
            tokens.insert(),
            [
                {"token_sha256": bytes([number]) * 4096, "client": "a", "expires_at": 1.0}
                for number in range(20)
            ],
        )

    with store.read() as connection:
        assert connection.execute(select(tokens)).first() is None


def test_a_store_that_lacks_a_descriptor_says_so(tmp_path: Path) -> None:
    store = open_store(StoreSettings(url=f"sqlite:///{tmp_path / 'store.sqlite'}"))
    # Its one connection is lent, so the next transaction needs another.
    with store.read():
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"), store.read():
                pass
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    store.close()
