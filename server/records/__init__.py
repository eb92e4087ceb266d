"""The store and the folder of a federation, one file for each kind of row.

Begin with ``store``. SQLite or PostgreSQL; what was acknowledged survives a power cut.
"""
