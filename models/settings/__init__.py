"""Settings of each family of networks, of personalisation, growth and compression.

Begin with ``model``, the union of all families with the schema that each implies. Imports ``text``
and ``vector``; loads no torch, because the resting device agent reads these settings. A value out
of bounds is refused with its name, its rule and what arrived.
"""
