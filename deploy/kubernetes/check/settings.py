"""Settings and ports of the manifests, held against the programs' own."""

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

from deploy.kubernetes.check.manifests import Body, Manifest, containers
from export.serve.folder.settings import ServeSettings
from privacy.foundation.strict_decoding import decoded
from privacy.foundation.strict_toml import TomlError, parse_toml
from server.config.federation import preset_text
from server.helper.cli import NewHelper


def broken(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield a line for each setting or port that the program behind it does not have."""
    for manifest in manifests:
        if manifest.kind == "ConfigMap":
            yield from (f"{manifest.where}: {line}" for line in _of_serving(manifest, manifests))
        for container in containers(manifest.pod) if manifest.pod else ():
            # A pair of hands listens nowhere.
            wanted = sorted(_PORTS[container["image"]]) if "args" in container else []
            got = sorted(port["containerPort"] for port in container.get("ports", ()))
            if got != wanted:
                yield f"{manifest.where}: {container['name']}: ports must be {wanted}, got {got}"


def _coordinators_ports() -> list[int]:
    listen = tomllib.loads(preset_text("keyboard"))["listen"]
    return [_port_of(listen["enrolment"]), _port_of(listen["devices"])]


def _helpers_port() -> int:
    fields = {field.name: field.default for field in msgspec.structs.fields(NewHelper)}
    return _port_of(str(fields["listen"]))


def _port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


_PORTS = {
    "sotto-server": _coordinators_ports(),
    "sotto-helper": [_helpers_port()],
    "sotto-serve": [_port_of(ServeSettings(accept_unsigned=False).listen.address)],
}


def _of_serving(map_: Manifest, manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield what is wrong with the settings of model servers, which are a file of their map."""
    text = map_.body["data"].get("serve.toml")
    if text is None:
        return
    try:
        settings = decoded(parse_toml(text), ServeSettings)
    except (TomlError, msgspec.ValidationError) as error:
        yield f"serve.toml: {error}"
        return
    listen = settings.listen
    if _port_of(listen.address) not in _PORTS["sotto-serve"]:
        yield f"serve.toml: address must have the port of the pods, got {listen.address}"
    mounted = {
        mount["mountPath"]
        for manifest in manifests
        if manifest.pod is not None
        for container in _serving(manifest.pod)
        for mount in container["volumeMounts"]
    }
    for file in (listen.certificate, listen.key):
        if file is None or str(PurePosixPath(file).parent) not in mounted:
            yield f"serve.toml: certificate and key must lie where pods have them, got {file}"


def _serving(pod: Body) -> Iterator[Body]:
    return (one for one in containers(pod) if one["image"] == "sotto-serve" and "args" in one)
