"""What personal models learnt, as pictures and distances.

Begin with ``commands``. It reads finished runs and trains nothing.
"""
