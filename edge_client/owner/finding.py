"""What the doctor says about one subject."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Finding:
    """One inspected subject: whether it is as it must be, and if not, the remedy in ``text``."""

    subject: str
    good: bool
    text: str

    def as_dict(self) -> dict[str, object]:
        """Return the finding without its subject, for JSON."""
        return {key: value for key, value in asdict(self).items() if key != "subject"}


def counted(count: int, what: str) -> str:
    """Return so many of what has a plural in ``s``."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")
