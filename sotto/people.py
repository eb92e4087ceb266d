"""One person's own part of a model, as ``sotto-export personal`` makes it."""

from pathlib import Path
from typing import Literal

from export.commands.flags import Personal
from export.commands.people import export_personal


def personal(
    source: str | Path,
    out: str | Path,
    *,
    client: str | None = None,
    published: str | Path | None = None,
    generated: str | Path | None = None,
    authority: str | Path | None = None,
    at_rest: Literal["float32", "float16", "int8"] = "float32",
    whole: bool = False,
) -> dict[str, object]:
    """Write the file of one client's own part, for ``Keyboard.load`` and ``Voice.load``.

    Args:
        source: Folder of a coordinator, of a run or of one release; or everyone's bundle, with
            ``published``.
        out: New folder, or a .zip, which is replaced in one step.
        client: The client's name; None for whoever published.
        published: What the client's device wrote with ``sotto-client publish``.
        generated: What the coordinator made for it, where a method has parts of both sides.
        authority: The federation's certificate, whose coordinator must have signed.
        at_rest: How the numbers are kept: 4, 2 or 1 bytes each.
        whole: Whether to write a bundle with the client's whole model instead.

    Returns:
        What ``sotto-export personal --json`` prints: ``file`` (or ``bundle``) and what it holds.

    Raises:
        ValueError: If the source, the client or the target is refused.
        OSError: If the disk refuses.
        ImportError: If the source is no bundle and there is no torch.
    """
    asked = Personal(
        source=Path(source),
        out=Path(out),
        client=client,
        published=None if published is None else Path(published),
        generated=None if generated is None else Path(generated),
        authority=None if authority is None else Path(authority),
        at_rest=at_rest,
        whole=whole,
    )
    try:
        return export_personal(asked)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"sotto.personal needs {error.name} to read {source}, which is no bundle; "
            "install sotto[export,train]"
        ) from None
