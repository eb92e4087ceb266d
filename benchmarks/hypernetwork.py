"""Measure what a round of FedTP costs the coordinator beside its aggregation.

A cohort of 100 clients of FedTP's ViT (depth 8, 64 a head): every client's projections are made
from its embedding, its update is pulled back through the making, and the hypernetwork steps once.

Figures (``--json`` prints them as one object):

    output_ratio            Parameters of the default output layers over those of the literal ones.
    round_ms                Processor time to make, pull back and close, one thread; per client in
                            ``make_ms`` and ``pull_back_ms``, once a round in ``close_ms``.
    versus_reading          Time of a client's turn over that of multiplying φ with a number, which
                            reads and writes each parameter once: the least a gradient can cost.
    payload_bytes           Down and up for one client, shared and generated tensors: the bytes of
                            FedAvg on the same model.
    state_bytes             What the coordinator keeps: φ, its momentum, and a row a client.
    extra_phi               Peak memory of the round beyond φ and its momentum, in units of φ;
                            ``..._small_cohort`` for a tenth of the clients.

``--literal`` measures the published output layers instead: 0.9 GiB of φ, and about 5 GiB of memory.
"""

import resource
import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.parts.figures import benchmark_parser, show_figures
from models.plan.roles import assign_roles
from models.settings.hypernetwork import HypernetworkSettings, hypernetwork_schema
from models.settings.image import VitSettings
from models.settings.model import schema_of
from models.settings.personalisation import FedTpSettings
from models.vector.schema import Role, Schema
from server.personalisation.hypernetwork import HypernetworkHalf
from server.personalisation.round_terms import RoundTerms

CLIENT_COUNT = 100
VIT = VitSettings(class_count=10, layer_count=8)


def output_parameters(settings: HypernetworkSettings, generated: Schema) -> int:
    """Return how many parameters the output layers have."""
    schema = hypernetwork_schema(settings, generated)
    return sum(
        tensor.element_count for tensor in schema.tensors if tensor.name.startswith("outputs.")
    )


def timed(work: Callable[[], object]) -> float:
    """Return the processor time of some work in milliseconds."""
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1e3


def peak_bytes() -> int:
    """Return the largest memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def one_round(half: HypernetworkHalf, update: Tensor, client_count: int) -> dict[str, float]:
    """Play one round and return its times in milliseconds, those of clients on average."""
    make_ms = pull_back_ms = 0.0
    half.begin(RoundTerms(slot_count=client_count, weighting="examples"))
    for client in range(client_count):
        name = f"client-{client:04}"
        make_ms += timed(lambda name=name: half.parameters_for(name))  # type: ignore[misc]  # bound now
        pull_back_ms += timed(lambda name=name: half.take(name, update, 100))  # type: ignore[misc]  # bound now
    close_ms = timed(half.close)
    return {
        "round_ms": make_ms + pull_back_ms + close_ms,
        "make_ms": make_ms / client_count,
        "pull_back_ms": pull_back_ms / client_count,
        "close_ms": close_ms,
    }


def measure(output: str, rounds: int, client_count: int) -> dict[str, float]:
    """Play rounds and return the figures."""
    method = FedTpSettings()
    travelling = assign_roles(method, schema_of(VIT)).with_roles(Role.SHARED, Role.GENERATED)
    generated = travelling.with_roles(Role.GENERATED)
    settings = HypernetworkSettings(output="literal" if output == "literal" else "mixture")
    literal = output_parameters(HypernetworkSettings(output="literal"), generated)
    default = output_parameters(HypernetworkSettings(), generated)

    generator = torch.Generator().manual_seed(0)
    initial = torch.empty(generated.element_count).normal_(std=0.05, generator=generator)
    update = torch.empty(generated.element_count).normal_(std=1e-3, generator=generator)
    phi_bytes = hypernetwork_schema(settings, generated).payload_bytes
    empty = peak_bytes()
    half = HypernetworkHalf(settings, generated, run_seed=0, initial=initial)

    # Twice: memory for the momentum is there from the second round on.
    for _ in range(2):
        one_round(half, update, client_count // 10)
    small = peak_bytes()
    played = min(
        (one_round(half, update, client_count) for _ in range(rounds)),
        key=lambda times: times["round_ms"],
    )
    large = peak_bytes()
    values = torch.ones(phi_bytes // 4)
    reading_ms = min(timed(lambda: values.mul_(1.0)) for _ in range(10))
    state_bytes = sum(tensor.nbytes for tensor in half.state().values())
    return {
        "clients": client_count,
        "literal_output_parameters": literal,
        "default_output_parameters": default,
        "output_ratio": default / literal,
        **played,
        "versus_reading": (played["make_ms"] + played["pull_back_ms"]) / reading_ms,
        "payload_bytes": travelling.payload_bytes,
        "round_bytes": 2 * client_count * travelling.payload_bytes,
        "state_bytes": state_bytes,
        "extra_phi": (large - empty) / phi_bytes - 2,
        "extra_phi_small_cohort": (small - empty) / phi_bytes - 2,
    }


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="one round (under a minute)")
    parser.add_argument("--literal", action="store_true", help="measure the published outputs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    output = "literal" if arguments.literal else "mixture"
    figures = measure(output, 1 if arguments.quick else 3, CLIENT_COUNT)
    show_figures(
        figures, "FedTP's hypernetwork, a round of the coordinator", as_json=arguments.json
    )


if __name__ == "__main__":
    main()
