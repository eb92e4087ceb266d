"""Score the keyboard on text that no device has, and say what the devices taught it."""

import msgspec
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from edge_client.owner.traffic import Day
from edge_client.training.users_scoring import evaluate_users
from examples.keyboard.devices import Deal
from examples.keyboard.setting_up import Place
from models.plan.plan import Plan
from models.settings.model import schema_of
from models.tasks.metrics import Counts
from models.vector.codec import decode
from server.config.federation import FederationConfig
from server.config.plans import make_plan
from server.releases.starting_model import starting_parameters
from sotto.keyboards import Keyboard

PROMPTS = ("see you ", "the value of the ", "if the object is ", "this method can be us")


def start_of(config: FederationConfig, hands: Deal) -> Tensor:
    """Return the parameters that the run starts from, flat float32."""
    return starting_parameters(config, _plan(config, hands))


def report(
    place: Place, config: FederationConfig, hands: Deal, before: Counts, console: Console
) -> None:
    """Print what changed from the public start to the last release."""
    payload = (place.coordinator / "releases" / "latest" / "parameters.bin").read_bytes()
    parameters = torch.from_numpy(decode(schema_of(config.model), payload).copy())
    after = score(config, hands, parameters)
    ends = f"after {config.rounds.cap} rounds"
    table = Table("held-out text", "public start", ends, title="What five devices taught it")
    table.add_row("perplexity of all tokens", f"{before.perplexity:.1f}", f"{after.perplexity:.1f}")
    for name, figure in (
        ("top-1 recall of words", "top1_recall"),
        ("top-3 recall of words", "top3_recall"),
        ("words not in the list", "unknown_words"),
    ):
        table.add_row(name, *(f"{getattr(counts, figure):.1%}" for counts in (before, after)))
    table.add_section()
    keyboards = [Keyboard.load(bundle) for bundle in (place.starting_bundle, place.bundle)]
    for prompt in PROMPTS:
        table.add_row(f'"{prompt}"', *(_suggested(keyboard, prompt) for keyboard in keyboards))
    console.print(table)
    moved = [
        msgspec.json.decode((text.parent / "traffic.json").read_bytes(), type=Day)
        for text in hands.folders
    ]
    down, up = (sum(getattr(day, name) for day in moved) for name in ("bytes_down", "bytes_up"))
    console.print(f"Sealed bytes: {down / 1e6:.1f} MB down, {up / 1e6:.1f} MB up.")


def score(config: FederationConfig, hands: Deal, parameters: Tensor) -> Counts:
    """Score parameters on the held-out sentences."""
    words = config.word_list.load()
    stream = torch.tensor(words.token_stream(hands.held_out), dtype=torch.int64)
    return evaluate_users(_plan(config, hands), parameters, [stream])


def _plan(config: FederationConfig, hands: Deal) -> Plan:
    words = config.word_list.load()
    return make_plan(config, run="0" * 32, cohort_size=len(hands.folders), vocabulary=words)


def _suggested(keyboard: Keyboard, text: str) -> str:
    return ", ".join(each.word for each in keyboard.suggest(text))
