"""The part that is one person's own, and everybody's embeddings: signed files.

Begin with ``personal_file``. Loads no torch; may import ``bundles``, ``graphs`` and ``runtime``. A
file goes only onto a bundle of its run, method and schema.
"""
