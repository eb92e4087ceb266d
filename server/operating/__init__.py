"""The work of the operator's commands; composes a coordinator.

Begin with ``running``. The only district that knows all others.
"""
