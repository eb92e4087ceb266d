"""What the operator's commands do; composes a coordinator.

Begin with ``running``. The only district that knows all others.
"""
