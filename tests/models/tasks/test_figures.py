"""Which way a figure is good, and which figures say nothing of that."""

import pytest

from models.tasks.figures import quality_of


@pytest.mark.parametrize(
    ("name", "more_is_better"),
    [
        ("top3_recall", True),
        ("valid_top1_recall", True),
        ("test_listed_top3_recall", True),
        ("accuracy_clients_worst_decile", True),
        ("keystroke_savings", True),
        ("stop_accuracy", True),
        ("perplexity", False),
        ("test_perplexity_clients_mean", False),
        ("valid_mel_l1", False),
        ("spectral_distance", False),
        ("train_loss", False),
        ("mcd_db", False),
        ("character_error_rate", False),
    ],
)
def test_a_figure_knows_which_way_is_better(name: str, more_is_better: bool) -> None:
    quality = quality_of(name)

    assert quality is not None
    assert quality.more_is_better is more_is_better


@pytest.mark.parametrize(
    "name",
    [
        "round",
        "round_s",
        "unknown_words",
        "bytes_up",
        "clients",
        "epsilon",
        "valid_",
        "not_perplexity",
        "",
    ],
)
def test_what_tells_nothing_of_a_model_is_no_figure_of_quality(name: str) -> None:
    assert quality_of(name) is None


def test_a_share_is_told_from_what_has_a_unit() -> None:
    shares = {name for name in ("top3_recall", "perplexity", "pesq") if quality_is_share(name)}

    assert shares == {"top3_recall"}


def quality_is_share(name: str) -> bool:
    quality = quality_of(name)
    return quality is not None and quality.is_share
