"""One round on one person's examples, from received parameters to the update that leaves.

Begin with ``local_round``, then ``outgoing`` for clipping, noise and compression.
"""
