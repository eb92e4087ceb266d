"""What the agent hands to the child, and what comes back.

Begin with ``job``. Loads no torch, and starts the child by its name.
"""
