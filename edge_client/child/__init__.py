"""The process that trains, and seals what leaves it.

Begin with ``work``. It reads one job, writes one result and ends; killed at any moment, it leaves
the device able to go on.
"""
