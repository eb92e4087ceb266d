import pytest
import torch

from privacy.noise.mode import Arrival
from privacy.noise.randomisation import add_normal
from privacy.noise.registry import noise_mode
from privacy.noise.settings import NoNoise, PaperNoise, PaperServerNoise, PrivacySettings

TENSORS = [slice(0, 300_000), slice(300_000, 400_000)]
SIZE = 400_000


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    "settings",
    [
        NoNoise(),
        PaperNoise(randomisation_magnitude=0.1),
        PaperServerNoise(randomisation_magnitude=0.1),
    ],
)
def test_every_mode_without_a_bound_says_so(settings: PrivacySettings) -> None:
    assert "no privacy guarantee" in settings.guarantee
    assert not settings.guarantees_privacy


def test_mode_none_leaves_every_place_as_it_is() -> None:
    mode = noise_mode(NoNoise())
    update = torch.ones(SIZE)

    assert torch.equal(mode.at_client(update, generator(), tensors=TENSORS), torch.ones(SIZE))
    assert torch.equal(mode.at_server(update, generator()), torch.ones(SIZE))
    assert torch.equal(mode.after_step(update, generator()), torch.ones(SIZE))


def test_mode_paper_adds_beta_times_sigma_at_the_client_only() -> None:
    mode = noise_mode(PaperNoise(randomisation_magnitude=0.5, noise_std=0.2))
    update = torch.ones(SIZE)

    sent = mode.at_client(update, generator(), tensors=TENSORS)
    noise = sent - 1

    # 400,000 draws of N(0, 0.1²): mean and std stray by more than 5 standard errors once in a
    # million seeds.
    assert abs(float(noise.mean())) < 5 * 0.1 / SIZE**0.5
    assert abs(float(noise.std()) - 0.1) < 5 * 0.1 / (2 * SIZE) ** 0.5
    assert torch.equal(update, torch.ones(SIZE))
    assert torch.equal(mode.after_step(update.clone(), generator()), update)


def test_mode_paper_server_adds_beta_after_the_step_only() -> None:
    mode = noise_mode(PaperServerNoise(randomisation_magnitude=0.3))

    released = mode.after_step(torch.zeros(SIZE), generator())

    assert abs(float(released.std()) - 0.3) < 5 * 0.3 / (2 * SIZE) ** 0.5
    assert not mode.at_client(torch.zeros(SIZE), generator(), tensors=TENSORS).any()
    assert not mode.at_server(torch.zeros(SIZE), generator()).any()


def test_scoring_the_clean_update_sends_its_tensor_norms_behind_the_noised_one() -> None:
    mode = noise_mode(PaperNoise(randomisation_magnitude=0.5, score="clean"))
    update = torch.tensor([3.0, 4.0, 12.0])

    sent = mode.at_client(update, generator(), tensors=[slice(0, 2), slice(2, 3)])

    assert mode.arrival is Arrival.NOISED_WITH_CLEAN_NORMS
    assert sent.shape == (5,)
    assert sent[3:].tolist() == [5.0, 12.0]
    assert not torch.equal(sent[:3], update)


def test_a_magnitude_of_zero_sends_the_update_bit_for_bit() -> None:
    mode = noise_mode(PaperNoise(randomisation_magnitude=0.0))
    update = torch.randn(100, generator=generator())

    assert torch.equal(mode.at_client(update, generator(), tensors=[slice(0, 100)]), update)


def test_the_draw_repeats_with_the_generator_and_differs_between_blocks() -> None:
    first = add_normal(torch.zeros(600_000), 1.0, generator(7))
    again = add_normal(torch.zeros(600_000), 1.0, generator(7))

    assert torch.equal(first, again)
    assert not torch.equal(first[: 1 << 18], first[1 << 18 : 1 << 19])
