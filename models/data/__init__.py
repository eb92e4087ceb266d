"""The shipped list of English words and the program that made it.

Begin with ``make_english_10k``, which imports ``text`` alone; README.md beside it gives sources and
licences.
"""
