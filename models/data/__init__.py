"""The shipped list of English words, the lists that are made of other languages, and programs.

Begin with ``language_lists``. ``make_english_10k`` made the English list and the words
that it lacks, ``make_german_spelling`` what German spells otherwise than wordfreq; README.md beside
them gives sources and licences. All
import ``text`` alone.
"""
