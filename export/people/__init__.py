"""The part that is one person's own: signed files, embeddings, tokens.

Begin with ``personal_file``. Loads no torch.
"""
