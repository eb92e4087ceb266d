"""Check that what is people's own was made for a bundle: for its run, its method, its tensors."""

from typing import Protocol

from export.bundles.manifest import BundleManifest
from export.bundles.manifest_entries import BundleError


class MadeForBundle(Protocol):
    """The bundle that a file is for, as the manifest of a person's or everybody's file says."""

    @property
    def run(self) -> str:
        """Return the identifier of the run."""

    @property
    def method(self) -> str:
        """Return the personalisation method."""

    @property
    def schema_sha256(self) -> str:
        """Return the hex digest of the personal tensors' schema."""


def check_fits(made: MadeForBundle, bundle: BundleManifest, *, whose: str) -> None:
    """Check a file, called ``whose`` in errors, against the bundle that it is to be used with.

    Raise BundleError if the bundle takes nothing of a person, or the file is of another run, method
    or
    schema.
    """
    if bundle.personal is None:
        raise BundleError(
            f"the bundle must take a person's tensors, but holds a whole model; {whose} is of no "
            "use to it"
        )
    for name, found, expected in (
        ("run", made.run, bundle.run),
        ("method", made.method, bundle.personal.method),
        ("schema", made.schema_sha256, bundle.personal_schema.sha256.hex()),
    ):
        if found != expected:
            raise BundleError(f"{name} of {whose} must be {expected}, the bundle's, got {found}")
