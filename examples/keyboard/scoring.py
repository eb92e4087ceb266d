"""Score the keyboard on text that no device has, and say what the devices taught it."""

import json

import msgspec
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from edge_client.owner.traffic import Day
from edge_client.training.users_scoring import evaluate_users
from examples.keyboard.devices import Deal
from examples.keyboard.processes import run, sotto
from examples.keyboard.setting_up import Place
from models.networks.flat_parameters import initial_parameters
from models.settings.model import schema_of
from models.tasks.metrics import Counts
from models.vector.codec import decode
from server.config.federation import FederationConfig
from server.config.plans import make_plan

PROMPTS = ("the value of the ", "if the object is ", "this method can be us")


def untrained(config: FederationConfig, hands: Deal) -> Counts:
    """Score the parameters that the run started from."""
    return _score(config, hands, initial_parameters(config.model, config.seed))


def report(
    place: Place, config: FederationConfig, hands: Deal, before: Counts, console: Console
) -> None:
    """Print what changed from before the first round to the last release."""
    payload = (place.coordinator / "releases" / "latest" / "parameters.bin").read_bytes()
    parameters = torch.from_numpy(decode(schema_of(config.model), payload).copy())
    after = _score(config, hands, parameters)
    table = Table("held-out text", "before", "after", title="What five devices taught it")
    table.add_row("perplexity of all tokens", f"{before.perplexity:.0f}", f"{after.perplexity:.1f}")
    for name, figure in (
        ("top-1 recall of words", "top1_recall"),
        ("top-3 recall of words", "top3_recall"),
        ("words not in the list", "unknown_words"),
    ):
        table.add_row(name, *(f"{getattr(counts, figure):.1%}" for counts in (before, after)))
    console.print(table)
    for prompt in PROMPTS:
        answer = json.loads(run(sotto("export", "suggest", place.bundle, prompt, "--json")))
        words = ", ".join(each["word"] for each in answer["suggestions"])
        console.print(f'  "{prompt}" -> {words}', highlight=False)
    moved = [
        msgspec.json.decode((text.parent / "traffic.json").read_bytes(), type=Day)
        for text in hands.folders
    ]
    down, up = (sum(getattr(day, name) for day in moved) for name in ("bytes_down", "bytes_up"))
    console.print(f"Sealed bytes: {down / 1e6:.1f} MB down, {up / 1e6:.1f} MB up.")


def _score(config: FederationConfig, hands: Deal, parameters: Tensor) -> Counts:
    words = config.word_list.load()
    plan = make_plan(config, run="0" * 32, cohort_size=len(hands.folders), vocabulary=words)
    stream = torch.tensor(words.token_stream(hands.held_out), dtype=torch.int64)
    return evaluate_users(plan, parameters, [stream])
