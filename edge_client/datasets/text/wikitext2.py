"""WikiText-2, word level: ``wiki.{train,valid,test}.tokens``.

Tokens are taken as they are; every line is a sentence, and blank lines are empty sentences, which
is how the set's published token counts come about. There are no users.

References:
    Merity et al., "Pointer Sentinel Mixture Models", ICLR 2017, arXiv:1609.07843.
"""

from pathlib import Path

from edge_client.datasets.reading import find_folder, read_word_lines
from edge_client.datasets.text_set import FederatedText, checked

_FILES = ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens")


def load(path: Path | None) -> FederatedText:
    """Load the three files from ``path``, or from ``wikitext-2`` in it.

    Raises:
        DatasetError: If a file is missing or no text.
    """
    folder = find_folder(path, "wikitext2", ("wikitext-2",), _FILES)
    train, valid, test = ({"wikitext2": read_word_lines(folder / file)} for file in _FILES)
    return checked(FederatedText(train, valid, test, has_users=False))
