"""The embedded default: the reference manual that ships inside every CPython.

About 60,000 words in 79 topics. Each topic is a user, which is naturally non-IID;
`simulation.population.deal_users.group_users` deals them to fewer clients.

References:
    The Python Language Reference, PSF licence version 2; ``pydoc_data.topics``.
"""

import re
from pathlib import Path
from pydoc_data.topics import topics

from edge_client.datasets.text_set import FederatedText, federate
from models.text.words import split_sentences

_PARAGRAPH_END = re.compile(r"\n\s*\n")
# Grammar, interpreter sessions, tables and heading rules are not sentences.
_NOT_PROSE = re.compile(r"::=|>>>|\.\.\. |\+--|={4}|-{4}|\*{4}|\|.*\|")


def load(path: Path | None) -> FederatedText:
    """Load this Python's manual, each topic's end held out; ``path`` is ignored.

    Raises:
        DatasetError: If this Python ships an empty manual.
    """
    del path
    return federate(prose_by_topic(), ["the text is the manual inside this Python"])


def prose_by_topic() -> dict[str, list[str]]:
    """Return each topic's sentences as text, one an item, without code, grammar and tables."""
    return {topic: _prose(text) for topic, text in sorted(topics.items())}


def _prose(text: str) -> list[str]:
    paragraphs = (" ".join(part.split()) for part in _PARAGRAPH_END.split(text) if _is_prose(part))
    return [
        " ".join(sentence) for paragraph in paragraphs for sentence in split_sentences(paragraph)
    ]


def _is_prose(paragraph: str) -> bool:
    """Return whether a paragraph is a sentence or more: headings and signatures end otherwise."""
    return paragraph.rstrip().endswith((".", ":")) and not _NOT_PROSE.search(paragraph)
