"""Bundles for people's devices, and what runs and serves them.

A bundle is ONNX graphs and a signed manifest, made from a coordinator's release. Begin with
``making.released_model`` for how one is made and with ``runtime.word_graph`` for how one runs;
``cli`` and ``serve.cli`` are the command lines. Imports ``models``, ``privacy`` and ``protos``, and
neither coordinator nor device: a release's files are all that it reads. Torch is loaded only where
a release becomes a bundle or a graph is compared.
"""
