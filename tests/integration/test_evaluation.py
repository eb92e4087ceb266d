"""Devices outside a round measure its model; the run keeps the best and stops in time."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from models.plan.plan import decode_plan
from server.operating.commands import Federation as Operated
from tests.integration.conftest import Make
from tests.integration.device import Device, next_lease
from tests.integration.test_real_refusals import connected
from tests.waiting import until


def test_counts_of_other_devices_choose_the_best_round_and_end_the_run(
    make_federation: Make,
) -> None:
    federation = make_federation(
        cap=50,
        cohort=1,
        quorum=1,
        tables='[evaluation]\nkind = "devices"\ncohort_size = 1\ndeadline_s = 600.0\n'
        "[convergence]\npatience = 2\n",
    )
    federation.start()
    federation.enrol(2)
    # Whoever is first must not have trained a round before there is somebody to measure it.
    operated = Operated(federation.root)
    operated.pause()
    # Losses in nats per token of the models of rounds 1, 2, ...: round 2 is best, and two
    # evaluations in a row without improvement end the run after round 4.
    losses = {1: 2.0, 2: 1.0, 3: 1.5, 4: 1.2}

    def work(device: Device) -> list[str]:
        kinds: list[str] = []
        for order in device.check_in():
            if order.HasField("retry_after"):
                assert order.retry_after.reason == "finished"
                break
            if order.HasField("lease"):
                lease = order.lease
                kinds.append(decode_plan(lease.plan).kind)
                if kinds[-1] == "train":
                    device.take_part(lease)
                else:
                    device.open_model(lease, device.fetch(lease))
                    # The model of round r is what round r + 1 starts from.
                    loss = losses[lease.round_number - 1]
                    hits = {"top1_hits": 2, "top3_hits": 4}
                    device.report(lease, tokens=10, loss=10 * loss, words=8, unknown=3, **hits)
        return kinds

    with ThreadPoolExecutor(2) as pool:
        working = pool.map(work, federation.devices)
        until(lambda: connected(federation) == 2)
        operated.resume()
        kinds = list(working)

    federation.stop()
    releases = federation.releases()
    assert [release.round_number for release in releases] == [1, 2, 3, 4]
    for release in releases:
        perplexity = release.metrics["perplexity"]
        assert isinstance(perplexity, float)
        assert math.isclose(perplexity, math.exp(losses[release.round_number]))
        # Of eight words the strip showed four, and the list lacks three.
        assert release.metrics["top3_recall"] == 4 / 8
        assert release.metrics["unknown_words"] == 3 / 8
        assert release.metrics["listed_top1_recall"] == 2 / 5
    assert (federation.folder.releases / "best").readlink().name == "000002"
    # Whoever trained a round did not evaluate it.
    assert sorted([*kinds[0], *kinds[1]]) == ["evaluate"] * 4 + ["train"] * 4


@pytest.mark.slow
def test_one_device_that_praises_a_model_neither_makes_it_the_best_nor_ends_the_run(
    make_federation: Make,
) -> None:
    federation = make_federation(
        cap=3,
        cohort=1,
        quorum=1,
        tables='[evaluation]\nkind = "devices"\ncohort_size = 3\nquorum = 3\ndeadline_s = 60.0\n'
        "[convergence]\npatience = 1\n",
    )
    federation.start()
    federation.enrol(4)
    operated = Operated(federation.root)
    operated.pause()

    def work(device: Device) -> None:
        for order in device.check_in():
            if order.HasField("retry_after"):
                break
            if order.HasField("lease") and decode_plan(order.lease.plan).kind == "train":
                device.take_part(order.lease)
            elif order.HasField("lease") and device is federation.devices[0]:
                # As much text as a report can hold, all of it foreseen.
                device.report(order.lease, tokens=2**60, loss=0.0, top1_hits=0, top3_hits=0)
            elif order.HasField("lease"):
                # Models of rounds 1, 2 and 3, better each time: 3, 2 and 1 nats a target.
                loss = 10.0 * (5 - order.lease.round_number)
                device.report(order.lease, tokens=10, loss=loss, top1_hits=2, top3_hits=5)

    with ThreadPoolExecutor(4) as pool:
        working = pool.map(work, federation.devices)
        until(lambda: connected(federation) == 4)
        operated.resume()
        list(working)

    federation.stop()
    found = [release.metrics["perplexity"] for release in federation.releases()]
    assert found == pytest.approx([math.exp(loss) for loss in (3, 2, 1)])
    assert (federation.folder.releases / "best").readlink().name == "000003"


def test_a_public_text_is_scored_at_every_release(make_federation: Make) -> None:
    federation = make_federation(
        cap=1,
        cohort=1,
        quorum=1,
        tables='[evaluation]\nkind = "public"\npublic_text = "public.txt"\n',
    )
    (federation.root / "public.txt").write_text("i will be home\nsee you at the game\n")
    federation.start()
    (device,) = federation.enrol(1)
    orders = device.check_in()

    device.take_part(next_lease(orders))
    list(orders)

    federation.stop()
    (release,) = federation.releases()
    # 200 words at random have a perplexity of about 200; the updates are small noise.
    perplexity = release.metrics["perplexity"]
    assert isinstance(perplexity, float)
    assert 150 < perplexity < 260
