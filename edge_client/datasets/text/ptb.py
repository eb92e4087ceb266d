"""Penn Treebank as language models know it: ``ptb.{train,valid,test}.txt``, 10,000 words.

Tokens are taken as they are, ``<unk>`` and ``N`` included. There are no users.

References:
    Mikolov et al., "Recurrent neural network based language model", Interspeech 2010.
    [FedAtt] Ji et al., IJCNN 2019, arXiv:1812.07108, section V.
"""

from pathlib import Path

from edge_client.datasets.reading import find_folder, read_word_lines
from edge_client.datasets.text_set import FederatedText, checked

_FILES = ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt")


def load(path: Path | None) -> FederatedText:
    """Load the three files from ``path``, or from ``ptb``, ``data`` or ``simple-examples/data``.

    Raises:
        DatasetError: If a file is missing or no text.
    """
    folder = find_folder(path, "ptb", ("ptb", "data", "simple-examples/data"), _FILES)
    train, valid, test = ({"ptb": read_word_lines(folder / file)} for file in _FILES)
    return checked(FederatedText(train, valid, test, has_users=False))
