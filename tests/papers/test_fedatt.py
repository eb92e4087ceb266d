"""What FedAtt's comparison comes to when rules are compared at one server step size.

[FedAtt] (Ji et al., IJCNN 2019, arXiv:1812.07108) reports lower perplexities than FedAvg on equal
i.i.d. shards; its code steps 1.2 times as far with attention as without. Here every pair has the
same seed, clients, order of data and step, so that nothing but the rule differs.
"""

from pathlib import Path

import pytest

from simulation.config.overrides import parse_override
from simulation.config.simulation import config_from, read_tables, with_settings
from simulation.population.dealing import build_population
from simulation.runs.runner import RunOptions, run_simulation

pytestmark = [pytest.mark.papers, pytest.mark.timeout(1200)]

COMMON = (
    "data.partition=iid",
    "data.client_count=40",
    "rounds={cap=15, cohort_size=10, quorum=10, deadline_s=60.0}",
    'privacy={mode="none"}',
)
FEDAVG = 'aggregation={{rule="mean", weighting="equal", server_step_size={step}}}'
LITERAL = 'aggregation={{rule="literal", norm="frobenius", server_step_size={step}}}'
SEEDS = (1, 2, 3)


def perplexity(folder: Path, rule: str, step: float, seed: int) -> float:
    settings = (*COMMON, rule.format(step=step), f"seed={seed}")
    tables = with_settings(read_tables("keyboard-tiny"), [parse_override(one) for one in settings])
    config = config_from(tables, "keyboard-tiny")
    out = folder / f"{rule[19:23]}-{step}-{seed}"
    options = RunOptions(worker_count=2)
    final = run_simulation(config, tables, build_population(config, None), out, options)
    return float(final["test_perplexity"] or 0)


def test_attention_brings_nothing_on_equal_shards_and_the_step_size_does(tmp_path: Path) -> None:
    by_rule, by_step = [], []
    for seed in SEEDS:
        plain = perplexity(tmp_path, FEDAVG, 1.0, seed)
        attentive = perplexity(tmp_path, LITERAL, 1.0, seed)
        farther = perplexity(tmp_path, FEDAVG, 1.2, seed)
        by_rule.append(abs(attentive / plain - 1))
        by_step.append(abs(farther / plain - 1))

    assert max(by_rule) < 0.02
    assert min(by_step) > max(by_rule)
