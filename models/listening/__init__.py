"""A voice judged without listeners: distances, recognised letters, pitch.

Begin with ``recogniser``. Used by simulations; no device loads it.
"""
