"""A trained voice measured and heard, between a ceiling and two floors.

Begin with ``session``. Measures live in ``models.listening``.
"""
