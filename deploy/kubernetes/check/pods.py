"""What every pod lets go of: the Pod Security Standards' restricted level, and rules of our own.

References:
    https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.kubernetes.check.manifests import Body, Manifest, containers

_LABEL = "pod-security.kubernetes.io/enforce"
_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}
_UID = re.compile(r"--uid (\d+) ")
_POD = {
    "runAsNonRoot",
    "runAsUser",
    "runAsGroup",
    "fsGroup",
    "fsGroupChangePolicy",
    "seccompProfile",
}
_CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
_HOSTS = ("hostNetwork", "hostPID", "hostIPC", "hostUsers", "ephemeralContainers")


def broken(manifests: Sequence[Manifest], images: Path) -> Iterator[str]:
    """Yield a line for each rule that a pod or a namespace breaks.

    Args:
        manifests: The objects of one kustomization.
        images: Folder of the Containerfiles, which say whose files an image has.
    """
    for manifest in manifests:
        if manifest.kind == "Namespace":
            level = manifest.body["metadata"].get("labels", {}).get(_LABEL)
            if level != "restricted":
                yield f"{manifest.where} must have {_LABEL}: restricted, got {level}"
        if manifest.pod is not None:
            for line in (*_of_pod(manifest.pod["spec"]), *_of_containers(manifest.pod, images)):
                yield f"{manifest.where}: {line}"


def _of_pod(spec: Body) -> Iterator[str]:
    security = spec.get("securityContext", {})
    if security.get("runAsNonRoot") is not True:
        yield "runAsNonRoot must be true"
    if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "seccompProfile must be RuntimeDefault"
    # By "Always", each start would let the group read the keys in the volume; a key that others
    # can read is refused.
    if "fsGroup" in security and security.get("fsGroupChangePolicy") != "OnRootMismatch":
        yield "fsGroupChangePolicy must be OnRootMismatch, or keys become the group's to read"
    if unknown := security.keys() - _POD:
        yield f"securityContext must not set {', '.join(sorted(unknown))}"
    for name in _HOSTS:
        if name in spec:
            yield f"{name} must not be set"
    for volume in spec.get("volumes", ()):
        if kinds := volume.keys() - {"name"} - _VOLUMES:
            yield f"volume {volume['name']} must not be {', '.join(sorted(kinds))}"
    for name in ("automountServiceAccountToken", "enableServiceLinks"):
        if spec.get(name) is not False:
            yield f"{name} must be false: no program here asks the cluster"


def _of_containers(pod: Body, images: Path) -> Iterator[str]:
    user = pod["spec"].get("securityContext", {}).get("runAsUser")
    for container in containers(pod):
        name, security = container["name"], container.get("securityContext", {})
        if security != _CONTAINER:
            yield f"{name}: securityContext must be {_CONTAINER}, got {security}"
        if any("hostPort" in port for port in container.get("ports", ())):
            yield f"{name}: hostPort must not be set"
        given = container.get("resources", {})
        for kind, least in (
            ("requests", {"cpu", "memory", "ephemeral-storage"}),
            ("limits", {"memory", "ephemeral-storage"}),
        ):
            if missing := least - given.get(kind, {}).keys():
                yield f"{name}: resources.{kind} must have {', '.join(sorted(missing))}"
        yield from _of_image(container, user, images)


def _of_image(container: Body, user: int | None, images: Path) -> Iterator[str]:
    role = container["image"].removeprefix("sotto-")
    built = images / f"{role}.Containerfile"
    if not built.is_file():
        yield f"{container['name']}: image must be one that {images.name}/ builds, got {role}"
        return
    uid = _UID.search(built.read_text(encoding="utf-8"))
    if uid is None or user != int(uid[1]):
        yield f"{container['name']}: runAsUser must be that of {built.name}, got {user}"
