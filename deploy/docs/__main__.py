"""Build the site of the guides: a folder that a browser opens, without a server or a network.

python -m deploy.docs                  # build/site, from this checkout
python -m deploy.docs --out FOLDER     # elsewhere
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.docs import check
from deploy.docs.building import SiteError, build


def main(argv: Sequence[str] | None = None) -> int:
    """Build the site and say where it is; return 1 if it was not built.

    Args:
        argv: Arguments; those of the process if None.
    """
    parser = argparse.ArgumentParser(prog="deploy.docs", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=check.ROOT / "build/site", help="folder of the site"
    )
    out: Path = parser.parse_args(argv).out.resolve()
    if check.main([str(check.ROOT)]):
        return 1
    try:
        build(check.ROOT, out)
    except SiteError as error:
        parser.exit(1, f"{error}\n")
    sys.stdout.write(f"open {out / 'index.html'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
