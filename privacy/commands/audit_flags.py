"""Describe the flags of ``sotto-privacy audit``; apart from its answer, which needs scipy."""

import argparse
from pathlib import Path


def add_audit_flags(audit: argparse.ArgumentParser) -> None:
    """Add the flags."""
    audit.add_argument(
        "--scores",
        type=Path,
        required=True,
        metavar="FILE",
        help="CSV with the header canary,score,included: a line a canary and round, included being "
        "1 or 0 as a fair coin fell",
    )
    audit.add_argument(
        "--noise-multiplier",
        type=float,
        help="z that the ledger names (no unit); left out where nothing is claimed",
    )
    audit.add_argument("--json", action="store_true", help="print the figures as JSON")
