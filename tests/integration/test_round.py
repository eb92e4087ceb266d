"""A whole deployment on loopback: enrol, check in, fetch, upload, commit, release."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import torch

from models.networks.flat_parameters import initial_parameters
from models.settings.model import schema_of
from models.vector.codec import decode
from server.closing.close import Closing, close_round
from server.closing.summing import Contribution
from tests.integration.conftest import Make
from tests.integration.device import code_of, next_lease, wait_finished
from tests.integration.federation import Federation


def run_to_the_end(federation: Federation) -> None:
    """Let every device take part until the run is over."""

    def work(position: int) -> None:
        device = federation.devices[position]
        orders = device.check_in()
        for _ in range(federation.config.rounds.cap):
            device.take_part(next_lease(orders))
        wait_finished(orders)

    with ThreadPoolExecutor(len(federation.devices)) as pool:
        list(pool.map(work, range(len(federation.devices))))


def test_three_rounds_release_what_the_same_updates_aggregate_to(make_federation: Make) -> None:
    federation = make_federation(cap=3)
    federation.start()
    devices = federation.enrol(2)

    run_to_the_end(federation)

    federation.stop()
    releases = federation.releases()
    assert [release.round_number for release in releases] == [1, 2, 3]
    assert [release.contribution_count for release in releases] == [2, 2, 2]
    assert all(release.is_published for release in releases)
    digest = expected_digest(federation, [device.name for device in devices], 3)
    assert releases[-1].parameters_sha256.hex() == digest
    payload = (federation.folder.releases / "latest" / "parameters.bin").read_bytes()
    flat = decode(schema_of(federation.config.model), payload)
    assert hashlib.sha256(flat.data).hexdigest() == digest
    # Nothing of any device is left: no sealed update and no upload.
    assert not any(path.is_file() for path in federation.folder.updates.rglob("*"))
    assert not any(federation.folder.uploads.iterdir())


def test_what_arrives_in_one_stream_is_opened_meanwhile_and_the_rest_from_its_file(
    make_federation: Make,
) -> None:
    federation = make_federation(cap=1)
    federation.start()
    whole, resumed = federation.enrol(2)
    streams = [device.check_in() for device in (whole, resumed)]
    leases = [next_lease(orders) for orders in streams]
    sealed = [
        device.seal_update(lease) for device, lease in zip((whole, resumed), leases, strict=True)
    ]
    whole.open_upload(leases[0], sealed[0][1], len(sealed[0][0]))
    whole.upload(leases[0], sealed[0][0])
    resumed.open_upload(leases[1], sealed[1][1], len(sealed[1][0]))
    resumed.upload(leases[1], sealed[1][0][:1000])
    resumed.upload(leases[1], sealed[1][0], offset=1000)

    for path in federation.folder.uploads.iterdir():
        path.write_bytes(bytes(path.stat().st_size))

    # Only what was opened before its file was blanked can still be verified.
    assert whole.commit(leases[0], sealed[0][1]) == 1
    with pytest.raises(grpc.RpcError) as refused:
        resumed.commit(leases[1], sealed[1][1])
    assert code_of(refused.value) == "unseal_failed"
    # The lease lives on, and the same bytes count after all.
    assert resumed.send(leases[1], *sealed[1]) == 1


def expected_digest(federation: Federation, names: list[str], rounds: int) -> str:
    """Aggregate the devices' made-up updates in this process, in the order of sorted names."""
    from models.vector.seeds import client_seed

    torch.set_num_threads(1)
    config = federation.config
    schema = schema_of(config.model)
    parameters = initial_parameters(config.model, config.seed)
    for round_number in range(1, rounds + 1):
        contributions = [
            Contribution(
                slot,
                torch.from_numpy(
                    np.random.default_rng(client_seed(config.seed, round_number, name))
                    .normal(0, 0.01, schema.element_count)
                    .astype(np.float32)
                ),
                100,
                name,
            )
            for slot, name in enumerate(sorted(names))
        ]
        parameters = close_round(
            parameters,
            contributions,
            Closing(
                schema=schema,
                aggregation=config.aggregation,
                privacy=config.privacy,
                slot_count=len(names),
                generator=torch.Generator(),
            ),
        ).parameters
    return hashlib.sha256(parameters.numpy().data).hexdigest()
