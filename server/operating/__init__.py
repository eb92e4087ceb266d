"""The work of the operator's commands; composes a coordinator and knows all other districts.

Begin with ``running``.
"""
