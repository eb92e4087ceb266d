"""The resting process: it checks in, accepts or refuses a plan, and hands work to the child.

Begin with ``agent``, then ``lease``. Loads no torch, and holds one connection.
"""
