"""Prometheus' figures of a running coordinator, and the alerts and the dashboard that use them."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from privacy.identities.party import Identity
from protos import federation_pb2 as pb
from server.operating.commands import Federation as Operated
from tests.integration.conftest import Make
from tests.integration.device import Device, code_of, next_lease
from tests.integration.federation import Federation, free_ports

OBSERVE = Path(__file__).parents[2] / "deploy" / "observe"
Samples = dict[tuple[str, str], float]

PHASES = ("waiting", "open", "closing", "given_up", "finished")


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        told: str = page.read().decode()
    return told


def samples_of(text: str) -> Samples:
    """Return each sample by its name and its label's value; ours have one label at most."""
    return {
        (sample.name, "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def watched(make: Callable[..., Federation], **changes: object) -> tuple[Federation, int]:
    """Return a federation that shows figures, and the port where."""
    (port,) = free_ports(1)
    return make(tables=f'metrics = "127.0.0.1:{port}"', **changes), port


def queries_of(dashboard: dict[str, Any]) -> list[str]:
    return [one["expr"] for panel in dashboard["panels"] for one in panel["targets"]]


def names_used() -> set[str]:
    """Return every metric's name in the alerts' and the dashboard's expressions."""
    (group,) = yaml.safe_load((OBSERVE / "alerts.yml").read_text())["groups"]
    dashboard = json.loads((OBSERVE / "dashboard.json").read_text())
    expressions = [rule["expr"] for rule in group["rules"]]
    expressions += queries_of(dashboard)
    expressions += [one["definition"] for one in dashboard["templating"]["list"][1:]]
    found = [re.findall(r"\bsotto_\w+", expression) for expression in expressions]
    assert all(found)
    return {name for names in found for name in names}


def test_each_figure_is_what_happened_and_alerts_and_dashboard_find_theirs(
    make_federation: Make,
) -> None:
    federation, port = watched(make_federation, cap=2)
    federation.start()
    devices = federation.enrol(2)
    orders = [device.check_in() for device in devices]
    sent_bytes, update_bytes = 0, 0
    for device, stream in zip(devices, orders, strict=True):
        lease = next_lease(stream)
        _ask_for_a_wrong_size(device, lease)
        sent_bytes += len(device.fetch(lease))
        sealed, message_id = device.seal_update(lease)
        update_bytes += len(sealed)
        device.open_upload(lease, message_id, len(sealed))
        device.upload(lease, sealed)
        device.commit(lease, message_id)
    leases = [next_lease(stream) for stream in orders]
    _ask_for_a_wrong_size(devices[0], leases[0])

    text = scraped(port)
    figures = samples_of(text)

    expected: Samples = {
        ("sotto_leads", ""): 1,
        ("sotto_rounds_released_total", ""): 1,
        ("sotto_round_attempt", ""): 0,
        ("sotto_paused", ""): 0,
        **{("sotto_phase", phase): float(phase == "open") for phase in PHASES},
        ("sotto_enrolled_devices", ""): 2,
        ("sotto_connected_devices", ""): 2,
        ("sotto_quorum_devices", ""): 2,
        ("sotto_leased_devices", ""): 2,
        ("sotto_committed_devices", ""): 0,
        # Two that the first round has reported, and one since.
        ("sotto_refusals_total", "wrong_size"): 3,
        ("sotto_received_bytes_total", ""): update_bytes,
    }
    assert {key: figures[key] for key in expected} == expected
    # Each message around a piece has a few bytes more.
    assert sent_bytes < figures["sotto_sent_bytes_total", ""] < sent_bytes + 1000
    assert figures["sotto_closing_seconds", ""] == federation.releases()[0].metrics["closing_s"]
    assert figures["sotto_phase_seconds_total", "open"] > 0
    # What `status` tells comes from the same places.
    operated = Operated(federation.root)
    assert operated.update_bytes() == {1: update_bytes}
    status = operated.status()
    assert (status.connected_clients, status.leased_clients) == (2, 2)
    received, sent = (
        figures["sotto_received_bytes_total", ""],
        figures["sotto_sent_bytes_total", ""],
    )
    assert (status.received_bytes, status.sent_bytes) == (received, sent)
    due_ms = 1000 * figures["sotto_round_due_seconds", ""]
    # Both clocks are read between two steps of a machine that tests keep busy; a round lasts 600 s.
    assert abs(due_ms - leases[0].deadline_ms) < 60_000
    ends_at = Identity.load(federation.folder.identity).ends_at
    assert figures["sotto_certificate_end_seconds", "coordinator"] == ends_at
    disk = shutil.disk_usage(federation.root)
    assert figures["sotto_disk_bytes", ""] == disk.total
    budgets = {"sotto_epsilon_spent", "sotto_epsilon_left", "sotto_epsilon_budget"}
    assert names_used() <= {name for name, _ in figures} | budgets


def _ask_for_a_wrong_size(device: Device, lease: pb.Lease) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        device.open_upload(lease, bytes(16), 1)
    assert code_of(refused.value) == "wrong_size"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus' promtool is not here")
def test_promtool_finds_no_fault_and_each_alert_fires_when_it_should() -> None:
    for check in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts-test.yml"]):
        done = subprocess.run(
            ["promtool", *check], cwd=OBSERVE, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus' promtool is not here")
def test_promtool_reads_each_query_of_the_dashboard(tmp_path: Path) -> None:
    queries = queries_of(json.loads((OBSERVE / "dashboard.json").read_text()))
    rules = [{"record": f"query:{number}", "expr": one} for number, one in enumerate(queries)]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML

    done = subprocess.run(
        ["promtool", "check", "rules", path], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(queries)} rules found" in done.stdout


def test_each_alert_says_what_is_wrong_and_what_to_do_and_has_a_test() -> None:
    (group,) = yaml.safe_load((OBSERVE / "alerts.yml").read_text())["groups"]
    tested = (OBSERVE / "alerts-test.yml").read_text()

    for rule in group["rules"]:
        assert rule["annotations"].keys() == {"summary", "remedy"}
        assert f'alertname="{rule["alert"]}"' in tested
