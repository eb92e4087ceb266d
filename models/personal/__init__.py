"""The mathematics of personal models: hypernetworks, neighbours, Gaussian processes.

Begin with ``hypernetwork`` (FedTP, Eqs. 6 to 8). Imports networks, layers and settings; needs torch
except ``hypernetwork_numpy``. It is called from ``server.personalisation`` and
``edge_client.personalisation``. Neighbours and processes are a client's data: they cannot be
pickled.
"""
