"""Reads what the coordinator released, without the coordinator's code.

Begin with ``release``; ``client_model`` makes one client's tensors of it and may load torch.
Imports ``bundles`` for signatures. Digests and signatures are checked before anything is used.
"""
