"""The manifests of `deploy/kubernetes/` fit schemas and programs, and a broken one is refused."""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
import yaml

from deploy.kubernetes.check.__main__ import FOLDERS, HERE, broken, main
from deploy.kubernetes.check.manifests import Body, KustomizationError, Manifest, read
from privacy.identities.keys import KeyFileError, read_private_key
from server.config.federation import parse_config
from server.operating.founding import found

ROOT = HERE.parents[1]
README = (HERE / "README.md").read_text()
WALK = re.findall(r"^\$ (.*)$", README, re.MULTILINE)


@cache
def _base() -> list[Manifest]:
    return read(HERE / "base")


def _one(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [one for one in manifests if (one.kind, one.name) == (kind, name)]
    return found


def _spec(kind: str, name: str) -> Body:
    """Return what the pods of one of ours are made by."""
    pod = _one(_base(), kind, name).pod
    assert pod is not None
    spec: Body = pod["spec"]
    return spec


@pytest.mark.slow
def test_every_manifest_fits_the_published_schemas_and_our_own_rules(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 0
    assert "objects of Kubernetes fit its schemas 1.34 and 1.37" in capsys.readouterr().out


def _coordinator(manifests: list[Manifest]) -> Body:
    spec: Body = _one(manifests, "StatefulSet", "coordinator").body["spec"]
    return spec


def _pod(manifests: list[Manifest]) -> Body:
    spec: Body = _coordinator(manifests)["template"]["spec"]
    return spec


def _container(manifests: list[Manifest]) -> Body:
    (container,) = _pod(manifests)["containers"]
    made: Body = container
    return made


BREAKS: dict[str, tuple[Callable[[list[Manifest]], object], str]] = {
    "a misspelt field": (
        lambda all_: _coordinator(all_).update(replica=2),
        "'replica' was unexpected",
    ),
    "a wrong type": (
        lambda all_: _coordinator(all_).update(replicas="two"),
        "spec.replicas: 'two' is not of type",
    ),
    "a namespace without its level": (
        lambda all_: _one(all_, "Namespace", "sotto").body["metadata"].pop("labels"),
        "must have pod-security.kubernetes.io/enforce: restricted",
    ),
    "root": (
        lambda all_: _pod(all_)["securityContext"].pop("runAsNonRoot"),
        "runAsNonRoot must be true",
    ),
    "another user than the image's": (
        lambda all_: _pod(all_)["securityContext"].update(runAsUser=10002),
        "runAsUser must be that of server.Containerfile, got 10002",
    ),
    "keys that become the group's": (
        lambda all_: _pod(all_)["securityContext"].pop("fsGroupChangePolicy"),
        "fsGroupChangePolicy must be OnRootMismatch",
    ),
    "no seccomp": (
        lambda all_: _pod(all_)["securityContext"].pop("seccompProfile"),
        "seccompProfile must be RuntimeDefault",
    ),
    "a capability": (
        lambda all_: _container(all_)["securityContext"].update(capabilities={"add": ["CHOWN"]}),
        "coordinator: securityContext must be",
    ),
    "the node's network": (
        lambda all_: _pod(all_).update(hostNetwork=True),
        "hostNetwork must not be set",
    ),
    "the node's disk": (
        lambda all_: _pod(all_)["volumes"].append({"name": "disk", "hostPath": {"path": "/"}}),
        "volume disk must not be hostPath",
    ),
    "a token of the cluster": (
        lambda all_: _pod(all_).pop("automountServiceAccountToken"),
        "automountServiceAccountToken must be false",
    ),
    "no bound of memory": (
        lambda all_: _container(all_)["resources"].pop("limits"),
        "resources.limits must have ephemeral-storage, memory",
    ),
    "a secret that nobody makes": (
        lambda all_: _pod(all_)["volumes"][1]["secret"].update(secretName="postgres"),
        "Secret postgres must be here, or made by the README",
    ),
    "a claim that is not there": (
        lambda all_: _pod(all_)["volumes"][0]["persistentVolumeClaim"].update(claimName="data"),
        "PersistentVolumeClaim data must be here",
    ),
    "a mount of nothing": (
        lambda all_: _pod(all_)["volumes"].pop(2),
        "volume tmp must be one of the pod's",
    ),
    "a policy about nobody": (
        lambda all_: (
            _one(all_, "NetworkPolicy", "people-to-serve")
            .body["spec"]["podSelector"]["matchLabels"]
            .update({"app.kubernetes.io/name": "server"})
        ),
        "selector must select a pod",
    ),
    "a service at another port": (
        lambda all_: (
            _one(all_, "Service", "coordinator").body["spec"]["ports"][0].update(targetPort="enrol")
        ),
        "port must be one of the pod's ['7440', '7441', 'devices', 'enrolment'], got enrol",
    ),
    "a port that no coordinator has": (
        lambda all_: _container(all_)["ports"][0].update(containerPort=7450),
        "ports must be [7440, 7441], got [7441, 7450]",
    ),
    "a command that is none": (
        lambda all_: _container(all_).update(args=["serve", "/data/federation"]),
        "invalid choice: 'serve'",
    ),
    "a flag in a shell's line that is none": (
        lambda all_: _container(all_)["livenessProbe"]["exec"].update(
            command=["sh", "-c", "sotto-server status /data/federation --alive || [ $? -eq 3 ]"]
        ),
        "unrecognized arguments: --alive",
    ),
    "an autoscaler of nothing": (
        lambda all_: (
            _one(all_, "HorizontalPodAutoscaler", "serve")
            .body["spec"]["scaleTargetRef"]
            .update(name="server")
        ),
        "Deployment server must be here",
    ),
    "settings that no server takes": (
        lambda all_: (
            _one(all_, "ConfigMap", "serving")
            .body["data"]
            .update({"serve.toml": 'accept_unsigned = false\n[listen]\naddress = "0.0.0.0:8080"\n'})
        ),
        "0.0.0.0:8080' is not loopback",
    ),
    "a certificate where no pod has one": (
        lambda all_: (
            _one(all_, "ConfigMap", "serving")
            .body["data"]
            .update(
                {"serve.toml": (HERE / "base/serve.toml").read_text().replace("/tls/", "/etc/")}
            )
        ),
        "certificate and key must lie where pods have them, got /etc/tls.crt",
    ),
}


@pytest.mark.parametrize("what", BREAKS)
def test_a_broken_manifest_is_refused(what: str) -> None:
    change, said = BREAKS[what]
    manifests = deepcopy(_base())
    before = {one.where: yaml.safe_dump(one.body) for one in manifests}

    change(manifests)

    changed = [one for one in manifests if yaml.safe_dump(one.body) != before[one.where]]
    lines = broken(manifests, changed)
    assert [line for line in lines if said in line], lines
    assert all(line.startswith(tuple(one.where for one in changed)) for line in lines), lines


def test_a_word_of_kustomize_that_the_check_does_not_know_is_refused(tmp_path: Path) -> None:
    shutil.copytree(HERE, tmp_path / "kubernetes")
    site = tmp_path / "kubernetes" / "example"
    with (site / "kustomization.yaml").open("a") as file:
        file.write("namePrefix: second-\n")

    with pytest.raises(KustomizationError, match="does not know namePrefix"):
        read(site)

    assert main([str(site)]) == 1


def test_a_patch_of_nothing_is_refused(tmp_path: Path) -> None:
    shutil.copytree(HERE, tmp_path / "kubernetes")
    patch = tmp_path / "kubernetes" / "example" / "database.yaml"
    patch.write_text(patch.read_text().replace("coordinator-to-postgresql", "to-mysql"))

    with pytest.raises(KustomizationError, match="must change one object, found 0"):
        read(patch.parent)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kubectl_renders_what_the_check_reads(folder: Path) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True
    )
    # kustomize ends a generated map's name with a hash, and puts a site's registry before an image.
    text = re.sub(r"serving-[a-z0-9]{10}\b", "serving", done.stdout)
    text = re.sub(r"image: registry\.example\.org/(sotto-[a-z]+):1", r"image: \1", text)
    rendered = list(yaml.safe_load_all(text))

    ours = [manifest.body for manifest in read(folder)]

    assert sorted(ours, key=yaml.safe_dump) == sorted(rendered, key=yaml.safe_dump)


def _give_to_group(root: Path, group: int, policy: str) -> None:
    """Do what a kubelet does before a pod with ``fsGroup`` starts.

    Source: SetVolumeOwnership in kubernetes/pkg/volume/volume_linux.go.
    """
    status = root.stat()
    has = status.st_gid == group and status.st_mode & 0o2770 == 0o2770
    if policy == "OnRootMismatch" and has:
        return
    for path in (root, *root.rglob("*")):
        os.chown(path, -1, group)
        rights = 0o2770 if path.is_dir() else 0o660
        path.chmod(stat.S_IMODE(path.stat().st_mode) | rights)


def test_keys_stay_their_owners_when_a_volume_is_mounted_again(tmp_path: Path) -> None:
    policy = _spec("StatefulSet", "coordinator")["securityContext"]["fsGroupChangePolicy"]
    group = os.getegid()
    _give_to_group(tmp_path, group, policy)
    text = (ROOT / "server/presets/keyboard-tiny.toml").read_text()
    found(tmp_path / "federation", text, ["fl.example.org"])
    key = tmp_path / "federation/authority/authority.key"

    _give_to_group(tmp_path, group, policy)
    read_private_key(key)

    # The default would have made it unusable.
    _give_to_group(tmp_path, group, "Always")
    with pytest.raises(KeyFileError, match="its mode is 0660"):
        read_private_key(key)


@pytest.mark.parametrize(("status", "is_alive"), [(0, True), (3, True), (1, False), (137, False)])
def test_one_that_leads_and_one_that_waits_are_alive(
    tmp_path: Path, status: int, is_alive: bool
) -> None:
    (container,) = _spec("StatefulSet", "coordinator")["containers"]
    stand_in = tmp_path / "sotto-server"
    stand_in.write_text(
        f'#!/bin/sh\n[ "$*" = "status /data/federation --leads" ] && exit {status}\n'
    )
    stand_in.chmod(0o755)

    for probe in ("livenessProbe", "startupProbe"):
        command = container[probe]["exec"]["command"]
        done = subprocess.run(command, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False)
        assert (done.returncode == 0) == is_alive


@pytest.mark.slow
def test_a_serving_folder_is_made_once_and_gets_its_settings_at_every_start(tmp_path: Path) -> None:
    (container,) = _spec("Deployment", "serve")["initContainers"]
    found(tmp_path / "f", (ROOT / "server/presets/keyboard-tiny.toml").read_text(), ["a.example"])
    for name in ("data", "settings", "authority"):
        (tmp_path / name).mkdir()
    shutil.copy(tmp_path / "f/authority/authority.crt", tmp_path / "authority")
    line = re.sub(r"/(data|settings|authority)/", rf"{tmp_path}/\1/", container["command"][2])
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOSTNAME": "serve-1"}

    for settings in ("# the first\n", "# the second\n"):
        (tmp_path / "settings" / "serve.toml").write_text(settings)
        subprocess.run(["sh", "-c", line], env=path, check=True, capture_output=True)
        assert (tmp_path / "data/serving/serve.toml").read_text() == settings

    assert sorted(one.name for one in (tmp_path / "data/serving").iterdir()) == [
        "authority.crt",
        "serve.toml",
    ]


def test_the_walks_settings_name_postgresql_and_no_password(tmp_path: Path) -> None:
    (line,) = [line for line in WALK if line.endswith("> federation.toml")]
    written = line.replace("server/presets", str(ROOT / "server/presets"))

    subprocess.run(["sh", "-c", written], cwd=tmp_path, check=True)

    text = (tmp_path / "federation.toml").read_text()
    store = parse_config(text, "the walk").store
    assert store.sqlite_path is None
    assert store.url == "postgresql+psycopg://"
    # What the address leaves out, PostgreSQL's library takes from the environment.
    (container,) = _spec("StatefulSet", "coordinator")["containers"]
    names = {variable["name"] for variable in container["env"]}
    assert {"PGHOST", "PGDATABASE", "PGUSER", "PGPASSWORD"} <= names
    assert "\npsycopg-binary==" in (ROOT / "deploy/lock/server.txt").read_text()
    by_value = [one for one in container["env"] if "value" in one]
    assert [one["name"] for one in by_value] == ["PGSSLMODE", "PGSSLROOTCERT"]
    # Each part of the secret is a file that the walk makes it from.
    keys = {
        one["valueFrom"]["secretKeyRef"]["key"] for one in container["env"] if one not in by_value
    }
    (made,) = [line for line in WALK if "create secret generic postgresql" in line]
    assert set(re.findall(r"--from-file=(\S+)", made)) == {*keys, "ca.crt"}


def test_pods_get_the_memory_and_the_time_to_stop_of_the_other_ways_to_run() -> None:
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    for kind, name, service, before_stop in (
        ("StatefulSet", "coordinator", "coordinator", 0),
        ("Deployment", "serve", "serve", 5),
    ):
        spec, composed = _spec(kind, name), services[service]
        (container,) = spec["containers"]
        assert container["resources"]["limits"]["memory"].lower() == composed["mem_limit"] + "i"
        stop_s = int(composed["stop_grace_period"].removesuffix("s"))
        assert spec["terminationGracePeriodSeconds"] == stop_s + before_stop
    # SIGTERM would let the round finish first, which takes longer than any pod is given.
    assert "\nSTOPSIGNAL SIGINT\n" in (ROOT / "deploy/containers/server.Containerfile").read_text()
