"""The store and the folder of a federation, one file for each kind of row.

Begin with ``store`` and ``tables``; it may import machine and config.
"""
