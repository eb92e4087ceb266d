"""The learning of personal models, as pictures and distances.

Begin with ``commands``. It reads finished runs and trains nothing.
"""
