"""Ray as a second engine of simulations: a cluster of machines, or of this machine's cores.

Begin with ``cluster``, which starts or joins one. Only this district imports Ray, and only where it
is asked for. An engine says where work runs: it is no setting of a run and never changes a bit.
"""
