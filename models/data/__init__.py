"""The shipped list of English words and the program that made it.

Begin with ``make_english_10k``; README.md beside it tells sources and licences.
"""
