"""The mark of tests that hold for SQLite and for PostgreSQL alike."""

import pytest

on_both_stores = pytest.mark.parametrize(
    "store_settings",
    # One worker runs all of the second kind, so that one server is started.
    ["sqlite", pytest.param("postgresql", marks=pytest.mark.xdist_group("postgresql"))],
    indirect=True,
)
