"""Every object against the schemas that Kubernetes publishes, which kubernetes-validate carries."""

from collections.abc import Iterator, Sequence

from deploy.kubernetes.check.manifests import Manifest

VERSIONS = ("1.34", "1.37")
"""The oldest Kubernetes that has all that the manifests ask for, and the newest that is known."""


def broken(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield a line for each object that a version of Kubernetes would not take as it is."""
    # It builds a grammar of every kind of address as it is imported, which takes seconds.
    from kubernetes_validate import ValidationError, validate
    from kubernetes_validate.utils import SchemaNotFoundError

    for manifest in manifests:
        for version in VERSIONS:
            try:
                # Strict: a field that no schema has is a typing error.
                validate(manifest.body, version, strict=True)
            except ValidationError as error:
                place = ".".join(str(step) for step in error.absolute_path)
                yield f"{manifest.where}: {place}: {error.message} (Kubernetes {version})"
            except SchemaNotFoundError as error:
                yield f"{manifest.where}: {error.message}"
