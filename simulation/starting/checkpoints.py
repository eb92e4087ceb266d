"""What a start keeps on disk on its way, and reading it back without trusting it."""

import io
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from privacy.foundation.atomic_files import READABLE, write_atomically


class StoppedStartError(ValueError):
    """Raised when what a folder holds cannot be gone on with; the text says why."""


def keep(checkpoint: Path, parts: Mapping[str, Any]) -> None:  # What torch can save.
    """Write the parts of a start; OSError if the disk is full, the file as it was then."""
    content = io.BytesIO()
    torch.save(dict(parts), content)
    write_atomically(checkpoint, content.getbuffer(), mode=READABLE)


@contextmanager
def kept(checkpoint: Path) -> Iterator[dict[str, Any]]:
    """Give the parts that were kept, on the CPU, to a block that takes them up.

    Raises:
        StoppedStartError: If they cannot be read, or the block finds that they do not fit.
    """
    try:
        yield torch.load(checkpoint, map_location="cpu", weights_only=True)
    # Whatever torch meets in bytes that it did not write.
    except (OSError, EOFError, KeyError, RuntimeError, ValueError, pickle.PickleError) as error:
        raise StoppedStartError(
            f"{checkpoint} cannot be gone on with ({type(error).__name__}); remove it to learn "
            "from the beginning"
        ) from None
