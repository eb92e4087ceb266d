"""Make the lists under ``lists`` from the npm package naughty-words; README.md gives the licence.

    npm pack naughty-words@1.2.0 && tar xzf naughty-words-1.2.0.tgz
    python -P export/blocked/make_lists.py package

Only entries that are one word of ours are kept (`models.text.words`): no other could ever stand in
a strip. Klingon, Esperanto and the seven words of Quebec are left out.
"""

import json
import sys
from pathlib import Path

# Run as a file from a checkout that is not installed.
sys.path.insert(0, str(Path(__file__).parents[2]))

from models.text.words import UNK_WORD, split_sentences

_LANGUAGES = (
    "ar cs da de en es fa fi fil fr hi hu it ja kab ko nl no pl pt ru sv th tr zh"  # as its files
)


def main(package: Path) -> None:
    """Write one list a language, in alphabetical order."""
    for language in _LANGUAGES.split():
        entries = json.loads((package / f"{language}.json").read_text(encoding="utf-8"))
        split = (split_sentences(entry) for entry in entries)
        words = {found[0][0] for found in split if len(found) == 1 and len(found[0]) == 1}
        written = "".join(f"{word}\n" for word in sorted(words - {UNK_WORD}))
        (Path(__file__).parent / "lists" / f"{language}.txt").write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
