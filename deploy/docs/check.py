"""Check that every link of every guide leads somewhere.

python -m deploy.docs.check            # this checkout
python -m deploy.docs.check FOLDER     # another one
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.docs.guides import CheckoutError, read_guides, tracked_files
from deploy.docs.links import broken, misnamed, unreached

ROOT = Path(__file__).parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each link that leads nowhere; return 1 if there is any.

    Links to other hosts are not looked at: no network is asked.

    Args:
        argv: Arguments; those of the process if None.
    """
    parser = argparse.ArgumentParser(prog="deploy.docs.check", description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="checkout to read")
    root: Path = parser.parse_args(argv).root
    try:
        files = tracked_files(root)
    except CheckoutError as error:
        parser.exit(1, f"{error}\n")
    guides = read_guides(root, files)
    lines = [*broken(guides, files), *unreached(guides), *misnamed(root, guides, files)]
    inside = sum(not link.is_outside for guide in guides.values() for link in guide.links)
    told = f"{inside} links of {len(guides)} guides lead somewhere"
    sys.stdout.write("\n".join(lines or [told]) + "\n")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
