"""A check, before anything of sotto is imported, that its everyday names lead to its own packages.

A notebook's folder comes first on Python's path, and may hold a ``models.py`` of its own.
"""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def check_one_home() -> None:
    """Raise ImportError if another package answers to one of sotto's names."""
    # By its place: its name begins with ``privacy``, which may be the stranger's.
    place = Path(__file__).resolve().parents[1] / "privacy" / "foundation" / "installation.py"
    spec = spec_from_file_location("sotto._installation", place)
    if spec is None or spec.loader is None:
        raise ImportError(f"sotto's own {place} cannot be imported; install sotto anew")
    installation = module_from_spec(spec)
    spec.loader.exec_module(installation)
    try:
        installation.check_installation()
    except installation.InstallationError as error:
        raise ImportError(str(error)) from None
