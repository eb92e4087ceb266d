"""What the subcommands of ``sotto-simulate`` do.

Begin with ``runs``. Help loads no torch.
"""
