"""The jobs that the agent hands to the child, and their outcomes.

Begin with ``job``. Loads no torch, and starts the child by its name.
"""
