"""The examples that there are, and how they are dealt to clients.

Begin with ``population``. A deal follows from the settings and the seed alone.
"""
