"""One line of figures a round; sums over clients and seeds; pictures.

Begin with ``metrics``. Knows no round and no network.
"""
