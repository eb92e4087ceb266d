"""Check the kustomizations of this folder.

python -m deploy.kubernetes.check            # base, example and helper
python -m deploy.kubernetes.check FOLDER     # another one, such as your own site
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.kubernetes.check import commands, pods, references, schemas, settings
from deploy.kubernetes.check.manifests import Body, KustomizationError, Manifest, read

HERE = Path(__file__).parents[1]
IMAGES = HERE.parent / "containers"
FOLDERS = [HERE / name for name in ("base", "example", "helper")]


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each broken rule; return 1 if there is any."""
    parser = argparse.ArgumentParser(prog="deploy.kubernetes.check", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=FOLDERS, help="kustomizations")
    folders: list[Path] = parser.parse_args(argv).folders
    lines: dict[str, None] = {}
    known: list[Body] = []
    for folder in folders:
        try:
            manifests = read(folder)
        except KustomizationError as error:
            lines[str(error)] = None
            continue
        # What stands in a base is found again, most of it unchanged, in what is built on it.
        fresh = [manifest for manifest in manifests if manifest.body not in known]
        known += [manifest.body for manifest in fresh]
        lines.update(dict.fromkeys(broken(manifests, fresh)))
    told = f"{len(known)} objects of Kubernetes fit its schemas {' and '.join(schemas.VERSIONS)}"
    sys.stdout.write("\n".join(lines) + "\n" if lines else f"{told}, and our own rules\n")
    return bool(lines)


def broken(manifests: Sequence[Manifest], fresh: Sequence[Manifest] | None = None) -> list[str]:
    """Return a line for each rule that the objects of one kustomization break.

    Args:
        manifests: All of them.
        fresh: Those whose shape nobody has looked at yet; all of them if None.
    """
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    # What has the wrong shape is not read any further.
    return list(schemas.broken(manifests if fresh is None else fresh)) or [
        *pods.broken(manifests, IMAGES),
        *references.broken(manifests, readme),
        *settings.broken(manifests),
        *commands.broken(manifests, readme),
    ]


if __name__ == "__main__":
    sys.exit(main())
