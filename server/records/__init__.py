"""The store and the folder of a federation, one file for each kind of row.

Begin with ``store`` and ``tables``. It may import machine and config. SQLite or PostgreSQL; an
acknowledged update survives a power cut. Migrations that were released never change.
"""
