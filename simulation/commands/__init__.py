"""The work of the subcommands of ``sotto-simulate``.

Begin with ``runs``. Help loads no torch.
"""
