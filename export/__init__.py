"""Bundles for people's devices, and what runs and serves them.

Imports ``models``, ``privacy`` and ``protos``, and neither coordinator nor device: a release's
files are all that it reads. Command lines are ``cli`` and ``serve.cli``. Begin with
``making.released_model`` for how a bundle is made and with ``runtime.word_graph`` for how it runs.
"""
