"""What a class says of its attributes, read from its docstring for help and schemas."""

import inspect
import re


def attribute_texts(kind: type) -> dict[str, str]:
    """Return what the docstrings of a class and its bases say of each attribute."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        _, _, section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")
        texts |= re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE)
    return texts
