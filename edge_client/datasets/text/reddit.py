"""English Reddit comments of GoEmotions: ``{train,dev,test}.tsv``, the comment in column 1.

A stand-in for the Reddit comments of [FedAtt], which were not published. Authors are unknown, so
there are no users. Masked names (``[NAME]``, ``[RELIGION]``) become ``<unk>``.

References:
    Demszky et al., "GoEmotions: A Dataset of Fine-Grained Emotions", ACL 2020, arXiv:2005.00547.
"""

import re
from pathlib import Path

from edge_client.datasets.reading import find_folder, read_text
from edge_client.datasets.text_set import (
    DatasetError,
    FederatedText,
    Sentence,
    add_sentences,
    checked,
)

_FILES = ("train.tsv", "dev.tsv", "test.tsv")
_MASK = re.compile(r"\[(NAME|RELIGION)\]")


def load(path: Path | None) -> FederatedText:
    """Load the three files from ``path``, or from ``reddit_goemotions``, ``data`` in it.

    Raises:
        DatasetError: If a file is missing or a line has no tab.
    """
    folder = find_folder(path, "reddit", ("reddit_goemotions", "data", "data/original"), _FILES)
    train, valid, test = (_read(folder / file) for file in _FILES)
    return checked(FederatedText(train, valid, test, has_users=False))


def _read(path: Path) -> dict[str, list[Sentence]]:
    part: dict[str, list[Sentence]] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        comment, tab, _ = line.partition("\t")
        if line and not tab:
            raise DatasetError(f"{path}, line {number}: must be tab-separated columns")
        if comment:
            add_sentences(part, "reddit", [_MASK.sub("<name>", comment)])
    return part
