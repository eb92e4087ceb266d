"""Mathematics behind personal models: hypernetworks, neighbours, Gaussian processes.

Begin with ``hypernetwork`` (FedTP, Eqs. 6 to 8). Who calls it, and when, is told in
``server.personalisation`` and ``edge_client.personalisation``.
"""
