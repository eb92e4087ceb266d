"""Words that no keyboard suggests unless its person says so, by language.

Begin with ``blocked_words``; ``make_lists`` made the files under ``lists``, and README.md beside it
gives source and licence. Imports nothing of this package. A list says nothing of what a person
types: they may type, and keep as typed, whatever they like.
"""
