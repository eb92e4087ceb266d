"""What the objects name: each is there too, or the README says that it is to be made."""

from collections.abc import Iterator, Sequence
from itertools import chain

from deploy.kubernetes.check.manifests import Body, Manifest, containers


def broken(manifests: Sequence[Manifest], readme: str) -> Iterator[str]:
    """Yield a line for each name that leads nowhere, and each selector that selects nothing.

    Args:
        manifests: The objects of one kustomization.
        readme: Its page, which names what is to be made as ``kubectl create secret generic NAME``.
    """
    there = {(manifest.kind, manifest.name) for manifest in manifests}
    pods = [manifest.pod for manifest in manifests if manifest.pod is not None]
    for manifest in manifests:
        if manifest.pod is not None:
            for kind, name in _named(manifest.pod):
                if (kind, name) not in there and not _is_to_be_made(kind, name, readme):
                    yield f"{manifest.where}: {kind} {name} must be here, or made by the README"
            yield from (f"{manifest.where}: {line}" for line in _mounts(manifest.pod))
        yield from (f"{manifest.where}: {line}" for line in _selections(manifest, pods))
        target = manifest.body.get("spec", {}).get("scaleTargetRef")
        if target and (target["kind"], target["name"]) not in there:
            yield f"{manifest.where}: {target['kind']} {target['name']} must be here"


def _named(pod: Body) -> Iterator[tuple[str, str]]:
    spec = pod["spec"]
    if "serviceAccountName" in spec:
        yield "ServiceAccount", spec["serviceAccountName"]
    for volume in spec.get("volumes", ()):
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"]
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
    for variable in chain.from_iterable(one.get("env", ()) for one in containers(pod)):
        source = variable.get("valueFrom", {})
        if "secretKeyRef" in source:
            yield "Secret", source["secretKeyRef"]["name"]
        if "configMapKeyRef" in source:
            yield "ConfigMap", source["configMapKeyRef"]["name"]


def _is_to_be_made(kind: str, name: str, readme: str) -> bool:
    makers = {
        "Secret": ("create secret generic", "create secret tls"),
        "ConfigMap": ("create configmap",),
    }
    return any(f"{maker} {name} " in readme for maker in makers.get(kind, ()))


def _mounts(pod: Body) -> Iterator[str]:
    volumes = {volume["name"] for volume in pod["spec"].get("volumes", ())}
    mounted: set[str] = set()
    for container in containers(pod):
        names = {mount["name"] for mount in container.get("volumeMounts", ())}
        mounted |= names
        for name in sorted(names - volumes):
            yield f"{container['name']}: volume {name} must be one of the pod's"
    for name in sorted(volumes - mounted):
        yield f"volume {name} must be mounted"


def _selections(manifest: Manifest, pods: Sequence[Body]) -> Iterator[str]:
    """Yield a line for each selector without a pod, and for each port that its pods do not have."""
    selector, ports = _asked(manifest)
    if selector is None:
        return
    chosen = [pod for pod in pods if _matches(selector, pod["metadata"]["labels"])]
    if not chosen:
        yield f"selector must select a pod, got {selector}"
        return
    for pod in chosen:
        known = {
            value
            for container in containers(pod)
            for port in container.get("ports", ())
            for value in (port["name"], port["containerPort"])
        }
        for port in ports:
            if port not in known:
                yield f"port must be one of the pod's {sorted(map(str, known))}, got {port}"


def _asked(manifest: Manifest) -> tuple[Body | None, list[str | int]]:
    spec = manifest.body.get("spec", {})
    if manifest.kind == "Service":
        ports = [port.get("targetPort", port["port"]) for port in spec["ports"]]
        return {"matchLabels": spec["selector"]}, ports
    if manifest.kind == "NetworkPolicy":
        inward = chain.from_iterable(rule.get("ports", ()) for rule in spec.get("ingress", ()))
        return spec["podSelector"], [port["port"] for port in inward]
    if manifest.kind == "PodDisruptionBudget" or manifest.pod is not None:
        return spec["selector"], []
    return None, []


def _matches(selector: Body, labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(
        rule["operator"] == "In" and labels.get(rule["key"]) in rule["values"]
        for rule in selector.get("matchExpressions", ())
    )
