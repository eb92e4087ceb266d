"""Text that a person typed, and public corpora of text.

Loads no torch: the agent asks here whether there is anything to train on. Imports no other room of
``datasets``.
"""
