"""The families of networks, one file each.

Begin with ``registry``, which builds a network from its settings, and ``flat_parameters``, which
ties it to the flat vector. Needs torch; imports ``layers``, ``plan`` and ``sound``, and knows no
task, no client and no file.
"""
