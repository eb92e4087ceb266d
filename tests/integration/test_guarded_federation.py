"""A deployment under a guarantee: the ledger goes with every release, through kills and limits."""

import json
import math
import re
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import torch

from models.networks.flat_parameters import initial_parameters
from models.settings.model import schema_of
from privacy.accounting.accountant import epsilon_of
from privacy.accounting.events import (
    EvaluationRelease,
    GaussianRelease,
    LocalRelease,
    SecretCoinFlips,
)
from privacy.accounting.ledger_chain import LedgerEntry, verify_chain
from privacy.accounting.ledger_file import LedgerFile, read_ledger
from privacy.cli import main as privacy_main
from privacy.clipping.clip import clip
from protos import federation_pb2 as pb
from server.cli import main
from server.closing.close import Closing, close_round
from server.closing.summing import Contribution
from server.config.federation import read_config
from server.config.plans import make_plan
from server.operating.commands import Federation as Operated
from server.records.folder import ServerFolder
from server.records.ledger import ledger_entries
from server.records.store import StoreError, check_run, open_store
from server.records.tree_keys import noise_keys_of
from server.releases.files import read_release
from server.releases.starting_model import starting_parameters
from tests.integration.device import Device, next_lease, plan_of, wait_finished
from tests.integration.federation import Federation, settings
from tests.integration.real_device import LIMIT_S, RealDevice, await_rounds
from tests.integration.serving_process import LEAP_S
from tests.integration.test_failpoints import StubbornDevice
from tests.integration.test_observed import samples_of, scraped, watched
from tests.integration.test_real_refusals import connected
from tests.integration.test_round import run_to_the_end
from tests.waiting import until

CENTRAL = """
noise_multiplier = 1.0
delta = 1e-3
epsilon_budget = {budget}
adjacency = "zero-out"
"""
EQUAL = 'rule = "mean"\nweighting = "equal"'
ATTENTIVE = 'rule = "attentive"\nattention_strength = 0.5\ngrouping = "layer"'
TREE = CENTRAL + "min_separation = 1\nmax_participation = 5\n"
BUFFERS = f'{TREE}mechanism = "blt"\nbuffer_decays = [0.9, 0.5]\nbuffer_scales = [0.3, 0.3]\n'
SAMPLED = """
selection = "sampled"
participation_rate = 1.0
population_size = 3
close_early = false
"""
EVENT = GaussianRelease(noise_multiplier=1.0, adjacency="zero-out", sampling=None)
Make = Callable[..., Federation]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Make]:
    """Return a function that founds federations in a mode with a guarantee."""
    made: list[Federation] = []

    def make(
        *,
        mode: str = "central",
        more_privacy: str = CENTRAL,
        budget: float = 100.0,
        rule: str = EQUAL,
        **changes: object,
    ) -> Federation:
        text = settings(more_privacy=more_privacy.format(budget=budget), **changes)
        text = text.replace('mode = "none"', f'mode = "{mode}"')
        text = text.replace('rule = "attentive"\nattention_strength = 0.5', rule)
        if "sampled" in text:
            text = text.replace("cohort_size = 2\n", "")
        made.append(Federation(tmp_path / f"g{len(made)}", text))
        return made[-1]

    yield make
    for federation in made:
        federation.stop()


def ledger_of(federation: Federation) -> list[LedgerEntry]:
    store = open_store(federation.config.store)
    try:
        return ledger_entries(store)
    finally:
        store.close()


def run_of(federation: Federation) -> str:
    store = open_store(federation.config.store)
    try:
        return check_run(store, federation.config.seed, schema_of(federation.config.model).sha256)
    finally:
        store.close()


def test_every_release_has_its_entry_and_names_it(
    guarded: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    federation = guarded(cap=3)
    federation.start()
    federation.enrol(2)

    run_to_the_end(federation)
    federation.stop()

    entries = ledger_of(federation)
    assert verify_chain(entries, run=run_of(federation)) == [EVENT] * 3
    assert [entry.round_number for entry in entries] == [1, 2, 3]
    latest = read_release(federation.folder.releases / "latest").record
    assert latest.ledger_sha256 == entries[-1].sha256.hex()
    assert latest.metrics["epsilon"] == pytest.approx(epsilon_of([EVENT] * 3, 1e-3))
    assert "privacy: central: (100, 0.001)-differential privacy" in federation.log
    capsys.readouterr()
    assert main(["ledger", str(federation.root), "--json"]) == 0
    exported = federation.root / "ledger.json"
    exported.write_text(capsys.readouterr().out)
    told = json.loads(exported.read_text())
    assert [entry["sha256"] for entry in told["entries"]] == [e.sha256.hex() for e in entries]
    assert told["spent"]["epsilon"] == pytest.approx(epsilon_of([EVENT] * 3, 1e-3))
    assert read_ledger(exported) == LedgerFile(run_of(federation), entries)


def test_the_run_ends_before_the_round_that_would_pass_its_budget(guarded: Make) -> None:
    federation = guarded(cap=5, budget=epsilon_of([EVENT] * 2, 1e-3) + 0.1)
    federation.start()
    devices = federation.enrol(2)

    def work(position: int) -> None:
        orders = devices[position].check_in()
        for _ in range(2):
            devices[position].take_part(next_lease(orders))
        wait_finished(orders)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    federation.stop()

    assert len(federation.releases()) == len(ledger_of(federation)) == 2
    assert re.search(r"the run ends before round 3: .* epsilon_budget", federation.log)


@pytest.mark.parametrize("failpoint", ["noised", "release_recorded"])
def test_a_kill_never_makes_a_recorded_round_again(guarded: Make, failpoint: str) -> None:
    federation = guarded(cap=2)
    federation.start(failpoint)
    devices = federation.enrol(2)

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(StubbornDevice(device).run) for device in devices]
        federation.wait_killed()
        recorded = {row.round_number: row.parameters_sha256 for row in federation.releases()}
        federation.start()
        for future in running:
            future.result(timeout=LIMIT_S)
    federation.stop()

    # Before the transaction nothing was recorded, and the round may be drawn anew; after it the
    # model is the recorded one. Either way the round is paid for once.
    assert (1 in recorded) == (failpoint == "release_recorded")
    final = {row.round_number: row.parameters_sha256 for row in federation.releases()}
    assert final.items() >= recorded.items()
    assert [entry.round_number for entry in ledger_of(federation)] == [1, 2]


@pytest.mark.parametrize(
    ("more_privacy", "rule"),
    [(TREE, EQUAL), (f'{TREE}noise_on = "sums"\n', ATTENTIVE), (BUFFERS, EQUAL)],
    ids=["tree", "tree of sums", "blt"],
)
def test_correlated_noise_goes_on_as_it_began(guarded: Make, more_privacy: str, rule: str) -> None:
    federation = guarded(mode="ftrl", more_privacy=more_privacy, cap=2, rule=rule)
    federation.start("published")
    devices = federation.enrol(2)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(StubbornDevice(device).run) for device in devices]
        federation.wait_killed()
        federation.start()
        for future in running:
            future.result(timeout=LIMIT_S)
    federation.stop()

    # Both rounds closed again in this process, with the sealed secret that the run began with.
    torch.set_num_threads(1)
    config, store = federation.config, open_store(federation.config.store)
    keys = noise_keys_of(federation.folder, store, config, run_of(federation))
    store.close()
    parameters, weights_so_far = initial_parameters(config.model, config.seed), None
    for number in (1, 2):
        closed = close_round(
            parameters,
            [
                Contribution(slot, torch.from_numpy(device.made_up(config, number)), 1)
                for slot, device in enumerate(sorted(devices, key=lambda device: device.name))
            ],
            Closing(
                schema=schema_of(config.model),
                aggregation=config.aggregation,
                privacy=config.privacy,
                slot_count=2,
                generator=torch.Generator(),
                round_number=number,
                noise_keys=keys,
                weights_so_far=weights_so_far,
            ),
        )
        parameters, weights_so_far = closed.parameters, closed.weights_so_far
    latest = read_release(federation.folder.releases / "latest")
    assert torch.equal(torch.tensor(latest.parameters), parameters)


def test_devices_of_a_tree_rest_between_their_rounds_and_who_is_left_is_told(
    guarded: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    rested = TREE.replace("min_separation = 1", "min_separation = 3")
    federation = guarded(mode="ftrl", more_privacy=rested, cap=3)
    federation.start()
    federation.enrol(4)
    orders = [device.check_in() for device in federation.devices]

    def work(position: int) -> int:
        lease = next_lease(orders[position])
        federation.devices[position].take_part(lease)
        return lease.round_number

    with ThreadPoolExecutor(4) as pool:
        rounds = list(pool.map(work, range(4)))
    await_rounds(federation, 2)

    # Two of four devices a round, each at most once in any three: round 3 never opens.
    assert sorted(rounds) == [1, 1, 2, 2]
    operated = Operated(federation.root)
    for _ in range(2):
        # Whatever wakes the coordinator makes it try again.
        operated.resume()
        assert len(federation.releases()) == 2
    why = (
        "each of the 4 enrolled devices has taken part 5 times (privacy.max_participation) or in "
        "one of the last 2 rounds (privacy.min_separation); none of them will ever be eligible "
        "again unless new devices enrol"
    )
    until(lambda: operated.status().shortage == why)
    assert main(["status", str(federation.root)]) == 0
    assert "ever be eligible again" in " ".join(capsys.readouterr().out.split())

    new = federation.enrol(2)
    orders += [device.check_in() for device in new]
    for device, stream in zip(new, orders[4:], strict=True):
        lease = next_lease(stream)
        assert lease.round_number == 3
        assert operated.status().shortage == ""
        device.take_part(lease)
    await_rounds(federation, 3)
    federation.stop()
    assert federation.log.count(f"round 3 cannot open: {why}") == 1


def test_a_sampled_round_keeps_its_draw_to_itself(guarded: Make) -> None:
    federation = guarded(cap=1, more_rounds=SAMPLED)
    federation.start()
    federation.enrol(3)
    orders = [device.check_in() for device in federation.devices]
    for device, stream in zip(federation.devices[:2], orders, strict=False):
        lease = next_lease(stream)
        assert plan_of(lease).cohort_size == 3
        device.take_part(lease)
    # Everybody present has committed long before the deadline.
    time.sleep(0.5)
    assert federation.releases() == []
    federation.leap()
    await_rounds(federation, 1)
    federation.stop()

    event = GaussianRelease(
        noise_multiplier=1.0,
        adjacency="zero-out",
        sampling=SecretCoinFlips(sampling_rate=1.0, population_size=3, slot_count=3),
    )
    assert verify_chain(ledger_of(federation), run=run_of(federation)) == [event]
    (release,) = federation.releases()
    assert release.contribution_count is None
    assert set(release.metrics) == {"epsilon", "delta"}
    # Until the deadline, to the millisecond: what came after it grows with how many came.
    assert release.duration_s == pytest.approx(LEAP_S, abs=0.002)
    assert f"round 1 released in {LEAP_S:.1f} s" in federation.log
    with closing(sqlite3.connect(federation.root / "store.sqlite")) as store:
        assert store.execute("SELECT count(*) FROM contributions").fetchone() == (0,)
        drawn = store.execute("SELECT members FROM attempts").fetchall()
        counted = store.execute("SELECT participation_count, last_round FROM clients").fetchall()
    assert drawn == [(None,)]
    assert counted == [(0, None)] * 3


LOCAL = "noise_multiplier = 9.0\ndelta = 1e-3\nepsilon_budget = {budget}\n"
SENT = LocalRelease(noise_multiplier=9.0)


def epsilon_told(federation: Federation, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what ``sotto-privacy epsilon`` says of the ledger in the federation's folder."""
    capsys.readouterr()
    assert privacy_main(["epsilon", "--ledger", str(federation.root), "--delta", "1e-3"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("failpoint", ["noised", "release_recorded"])
def test_noise_of_each_devices_own_is_paid_for_with_every_attempt_through_kills(
    guarded: Make, capsys: pytest.CaptureFixture[str], failpoint: str
) -> None:
    federation = guarded(mode="local", more_privacy=LOCAL, cap=1)
    federation.start(failpoint)
    first, second = federation.enrol(2)
    orders, _ = first.check_in(), second.check_in()
    lease = next_lease(orders)
    # Paid for before the lease; what is sent now counts in no release.
    assert verify_chain(ledger_of(federation), run=run_of(federation)) == [SENT]
    first.take_part(lease)
    federation.leap()
    next_lease(orders)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(StubbornDevice(device).run) for device in (first, second)]
        federation.wait_killed()
        federation.start()
        for future in running:
            future.result(timeout=LIMIT_S)
    federation.stop()

    entries, (release,) = ledger_of(federation), federation.releases()
    assert release.attempt >= 1
    assert [entry.round_number for entry in entries] == [1] * (release.attempt + 1)
    spent = verify_chain(entries, run=run_of(federation))
    assert release.metrics["epsilon"] == pytest.approx(epsilon_of(spent, 1e-3))
    # Counts over updates that the coordinator may see.
    assert release.metrics["contributions"] == 2
    latest = read_release(federation.folder.releases / "latest").record
    assert latest.ledger_sha256 == entries[-1].sha256.hex()
    assert f"epsilon {epsilon_of(spent, 1e-3):.4g} " in epsilon_told(federation, capsys)


@pytest.mark.slow
def test_what_devices_refuse_is_no_figure_where_they_noise_their_own(guarded: Make) -> None:
    federation = guarded(mode="local", more_privacy=LOCAL, cap=1, quorum=1)
    federation.start()
    willing, unwilling = federation.enrol(2)
    orders, other_orders = willing.check_in(), unwilling.check_in()
    lease, other_lease = next_lease(orders), next_lease(other_orders)
    willing.take_part(lease)

    refusal = pb.RefusePlanRequest(lease_nonce=other_lease.nonce, code="data_unusable")
    unwilling.stub.RefusePlan(refusal, timeout=60)

    wait_finished(orders)
    (release,) = federation.releases()
    assert release.metrics["contributions"] == 1
    assert not [name for name in release.metrics if name.startswith("refused_")]


def test_an_attempt_that_would_pass_the_budget_of_each_devices_own_noise_is_not_opened(
    guarded: Make,
) -> None:
    budget = epsilon_of([SENT], 1e-3) + 1e-3
    federation = guarded(mode="local", more_privacy=LOCAL, budget=budget, cap=3)
    federation.start()
    first, second = federation.enrol(2)
    orders, _ = first.check_in(), second.check_in()
    lease = next_lease(orders)
    spent = f"{epsilon_of([SENT], 1e-3):.4g}"
    # Each onlooker's figure by name: what a device noises itself is the same to both.
    assert Operated(federation.root).status().spent == (
        f"epsilon is {spent} against readers of releases and {spent} against the coordinator, at "
        "delta 0.001"
    )
    first.take_part(lease)
    federation.leap()
    wait_finished(orders)
    federation.stop()

    assert federation.releases() == []
    assert verify_chain(ledger_of(federation), run=run_of(federation)) == [SENT]
    assert re.search(r"the run ends before round 1: .* epsilon_budget", federation.log)


EVALUATED = EvaluationRelease(noise_multiplier=1e-2, adjacency="zero-out", sampling=None)
# One device at little noise, so that its figure can be told; it protects nobody. A standard
# deviation is twenty steps of the noise's grid, and 0.02 nats.
EVALUATION = """
[evaluation]
kind = "devices"
cohort_size = 1
deadline_s = 60.0
noise = { noise_multiplier = 1e-2, token_cap = 10, loss_cap = 2.0 }
"""


RECALLS = ("top1_recall", "top3_recall")


class Evaluator(StubbornDevice):
    """Measure models too: the one of round 2 is the best."""

    def __init__(self, device: Device, federation: Federation) -> None:
        super().__init__(device)
        self._federation = federation

    def _take_part(self, lease: pb.Lease) -> None:
        if plan_of(lease).kind == "train":
            # Who trained is not asked, so the other must be there, after a restart too.
            until(lambda: connected(self._federation) == 2)
            super()._take_part(lease)
            return
        assert plan_of(lease).evaluation_noise is not None
        loss = {1: 2.0, 2: 1.0, 3: 1.5}[lease.round_number - 1]
        hits = {"top1_hits": 2, "top3_hits": 5}
        self._device.report(lease, tokens=10, loss=10 * loss, words=8, unknown=1, **hits)


def test_devices_choose_the_best_model_by_noised_counts_that_are_paid_for_first(
    guarded: Make,
) -> None:
    federation = guarded(cap=3, cohort=1, quorum=1, budget=1e8, tables=EVALUATION)
    federation.start("evaluation_paid")
    devices = federation.enrol(2)

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(Evaluator(device, federation).run) for device in devices]
        federation.wait_killed()
        assert verify_chain(ledger_of(federation), run=run_of(federation)) == [EVENT, EVALUATED]
        federation.start()
        for future in running:
            future.result(timeout=LIMIT_S)
    federation.stop()

    # What was paid for before the kill is lost and stays paid for; the next round goes on.
    events = verify_chain(ledger_of(federation), run=run_of(federation))
    assert events == [EVENT, EVALUATED] * 3
    first, second, third = federation.releases()
    assert "perplexity" not in first.metrics
    assert second.metrics["perplexity"] == pytest.approx(math.exp(1.0), rel=0.2)
    assert third.metrics["perplexity"] == pytest.approx(math.exp(1.5), rel=0.2)
    # Devices reported the same hits of both. Noise may leave one figure as it was, once in fifty
    # draws, and all of them once in tens of millions.
    is_same = all(second.metrics[name] == third.metrics[name] for name in RECALLS)
    perplexities = second.metrics["perplexity"], third.metrics["perplexity"]
    assert (*perplexities, is_same) != (math.exp(1.0), math.exp(1.5), True)
    assert third.metrics["epsilon"] == pytest.approx(epsilon_of(events, 1e-3))
    assert (federation.folder.releases / "best").readlink().name == "000002"


def refusal(federation: Federation, capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """Run a command that is to fail, and return its one line."""
    capsys.readouterr()
    assert main([*command, str(federation.root)]) == 1
    # Logging shares the stream.
    return capsys.readouterr().err.strip().splitlines()[-1]


def change_store(federation: Federation, *statements: str) -> None:
    with closing(sqlite3.connect(federation.root / "store.sqlite")) as store:
        for statement in statements:
            store.execute(statement)
        store.commit()


def test_a_ledger_that_was_edited_or_lost_its_end_is_refused_at_the_start(
    guarded: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    federation = guarded(cap=3)
    federation.start()
    federation.enrol(2)
    run_to_the_end(federation)
    federation.stop()
    change_store(federation, "PRAGMA wal_checkpoint(TRUNCATE)")
    whole = (federation.root / "store.sqlite").read_bytes()
    waiting = federation.folder.updates / "round-4" / "acknowledged.sealed"
    waiting.parent.mkdir(parents=True)
    waiting.touch()

    change_store(federation, "UPDATE ledger SET round_number = 9 WHERE sequence = 2")
    for command in ("run", "ledger"):
        assert "ledger entry 2 was changed" in refusal(federation, capsys, command)

    (federation.root / "store.sqlite").write_bytes(whole)
    change_store(federation, "DELETE FROM ledger WHERE sequence > 1")
    for command in ("run", "ledger"):
        refused = refusal(federation, capsys, command)
        assert "ends with entry 1 and lacks the newest of rounds 2 to 3" in refused
    offline = ["epsilon", "--delta", "1e-3", "--ledger", str(federation.root / "store.sqlite")]
    assert privacy_main(offline) == 1
    assert "lacks the newest of rounds 2 to 3" in capsys.readouterr().err

    # A store that is put back from before round 3, beside the releases of now.
    (federation.root / "store.sqlite").write_bytes(whole)
    change_store(
        federation,
        "DELETE FROM ledger WHERE round_number > 2",
        "DELETE FROM releases WHERE round_number > 2",
        "DELETE FROM attempts WHERE round_number > 2",
    )
    for command in ("run", "ledger"):
        refused = refusal(federation, capsys, command)
        assert "ends with entry 2 and lacks the newest of round 3" in refused
    # Nothing that the lost store knew was deleted.
    assert waiting.exists()


def test_changed_settings_or_another_key_do_not_open_a_trees_secret(
    guarded: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    federation = guarded(mode="ftrl", more_privacy=TREE, cap=3)
    federation.start()
    federation.stop()
    founded, store = federation.config, open_store(federation.config.store)
    run = run_of(federation)
    told, summed = (
        msgspec.structs.replace(
            founded, privacy=msgspec.structs.replace(founded.privacy, noise_on=noise_on)
        )
        for noise_on in ("mean", "sums")
    )
    # To say what was meant opens it as before; noise on sums would not cancel.
    assert noise_keys_of(federation.folder, store, told, run).repeats
    with pytest.raises(StoreError, match="drawn under other settings of privacy"):
        noise_keys_of(federation.folder, store, summed, run)
    store.close()
    config, key = federation.root / "federation.toml", federation.folder.noise_secret
    assert key.stat().st_mode & 0o077 == 0
    settings_then, key_then = config.read_text(), key.read_bytes()

    config.write_text(settings_then.replace("clipping_norm = 100.0", "clipping_norm = 50.0"))
    assert "drawn under other settings" in refusal(federation, capsys, "run")

    config.write_text(settings_then)
    key.write_bytes(key_then[::-1])
    assert "noise.secret was replaced" in refusal(federation, capsys, "run")

    key.unlink()
    assert "noise.secret is missing" in refusal(federation, capsys, "run")


def test_a_tree_that_went_back_to_a_backup_does_not_draw_its_noise_again(
    guarded: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    federation = guarded(mode="ftrl", more_privacy=TREE, cap=1)
    federation.start()
    federation.enrol(2)
    run_to_the_end(federation)
    federation.stop()
    archive, again = tmp_path / "backup.tar", ServerFolder(tmp_path / "again")
    capsys.readouterr()

    assert main(["backup", str(federation.root), "--out", str(archive)]) == 0
    assert "noise.secret is left out" in capsys.readouterr().out
    assert main(["restore", str(archive), str(again.root)]) == 0
    told = capsys.readouterr().out

    # Two starts, since the first could have made a key for the second.
    latest = again.releases / "latest"
    for _ in range(2):
        assert main(["run", str(again.root)]) == 1
        refused = capsys.readouterr().err.strip().splitlines()[-1]
        assert "noise.secret is missing" in refused
        for text in (told, refused):
            assert "no round was released after the backup" in text
            assert f'start_from = "{latest}"' in text
    # What a new run is told to start from is the last model there was.
    config = msgspec.structs.replace(federation.config, start_from=str(latest))
    started = starting_parameters(config, make_plan(config, "0" * 32, cohort_size=2))
    assert torch.equal(started, torch.tensor(read_release(latest).parameters))
    # A run that moved goes on with the very noise that it began with.
    again.noise_secret.write_bytes(federation.folder.noise_secret.read_bytes())
    draws = []
    for folder in (federation.folder, again):
        moved = read_config(folder.config)
        store = open_store(moved.store)
        draws.append(noise_keys_of(folder, store, moved, run_of(federation)).draw("node"))
        store.close()
    assert draws[0] == draws[1]


@pytest.mark.xdist_group("real devices")
def test_nothing_of_one_device_is_written_or_told(
    guarded: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    federation, port = watched(guarded, cap=2, rule=EQUAL, clipping_norm=0.5)
    federation.start()
    made_up = federation.enrol(1)[0]
    device = RealDevice(tmp_path / "device", "the train is late again\nbuy bread and milk\n")
    device.enrol(federation.invite(1)[0])
    device.start()
    try:
        orders = made_up.check_in()
        for _ in range(2):
            lease = next_lease(orders)
            while_open = samples_of(scraped(port))
            assert (
                main(["report", str(federation.root), "--html", str(tmp_path / "open.html")]) == 0
            )
            assert main(["watch", str(federation.root)]) == 0
            made_up.take_part(lease)
        await_rounds(federation, 2)
        figures = scraped(port)
        assert main(["watch", str(federation.root)]) == 0
        drawn = capsys.readouterr().out
        assert main(["status", str(federation.root), "--json"]) == 0
        assert main(["rounds", str(federation.root), "--json"]) == 0
        assert main(["report", str(federation.root), "--html", str(tmp_path / "end.html")]) == 0
        told = capsys.readouterr().out
    finally:
        device.stop()
    federation.stop()
    assert main(["report", str(federation.root), "--html", str(tmp_path / "stopped.html")]) == 0

    assert "privacy: central: (100, 0.001)-differential" in device.log.read_text()
    for line in (federation.root / "metrics.jsonl").read_text().splitlines():
        assert set(json.loads(line)) <= {
            *("round", "attempt", "model_sha256", "duration_s", "epsilon", "delta"),
        }
    released = read_release(federation.folder.releases / "latest").record
    assert set(released.metrics) == {"epsilon", "delta"}
    # Places, whatever became of the updates.
    assert [release.contribution_count for release in federation.releases()] == [2, 2]
    for client in json.loads(told.splitlines()[0])["clients"]:
        assert client["participation_count"] is None
    written = b"\n".join(
        path.read_bytes()
        for path in sorted(federation.root.rglob("*"))
        if path.is_file() and path.name != "parameters.bin"
    )
    written += federation.log.encode() + (drawn + told).encode() + device.log.read_bytes()
    # Counts of the enrolled alone: nothing of who was drawn, came or was refused, or of their sum.
    at_the_end = samples_of(figures)
    names = {name.removeprefix("sotto_") for name, _ in at_the_end}
    assert names == {
        *("leads", "disk_free_bytes", "disk_bytes", "certificate_end_seconds"),
        *("rounds_released_total", "round_attempt", "phase", "paused"),
        *("enrolled_devices", "connected_devices", "quorum_devices"),
        *("epsilon_budget", "epsilon_spent", "epsilon_left"),
    }
    assert while_open.keys() - at_the_end.keys() == {("sotto_round_due_seconds", "")}
    assert drawn.count(" of 2 connected") == 3
    assert "2 of 2 rounds released" in drawn
    assert not re.search("updates  |newest|took|refused", drawn)
    epsilon = epsilon_of([EVENT, EVENT], 1e-3)
    pages = [(tmp_path / f"{when}.html").read_text() for when in ("open", "end", "stopped")]
    for page in pages:
        # Nobody by name, nothing of a round but its day, and no count of the drawn.
        assert not re.search("device-0|duration|contributions|closing|[0-9]{2}:[0-9]{2}:", page)
        assert page.count("eld back") == 2
        written += page.encode()
    assert "2 of 2 released" in pages[1]
    assert f"epsilon {epsilon:.4g} at delta 0.001 spent, of at most 100 promised: kept" in pages[1]
    assert at_the_end["sotto_epsilon_spent", "readers"] == epsilon
    assert at_the_end["sotto_epsilon_left", "readers"] == 100.0 - epsilon
    # Bytes of a disk, and ends of certificates, have so many digits that one may look like a norm.
    written += re.sub(r"sotto_(disk|certificate|round_due)\S* .*", "", figures).encode()
    # How long a round took, or when somebody enrolled, may happen to look like a norm.
    written = re.sub(rb'"(duration_s|enrolled_at)": ?[-+.e0-9]+', b"", written)
    for number in (1, 2):
        _, norm = clip(torch.from_numpy(made_up.made_up(federation.config, number)), None)
        for form in (f"{norm:.4g}", f"{norm:.3f}"):
            assert form.encode() not in written
        # Not as four bytes: signatures and keys are thousands, at random.
        for packed in (struct.pack("<d", norm), struct.pack(">d", norm)):
            assert packed not in written
    with closing(sqlite3.connect(federation.root / "store.sqlite")) as store:
        assert store.execute("SELECT count(*) FROM contributions").fetchone() == (0,)
