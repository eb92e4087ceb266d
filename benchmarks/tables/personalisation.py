"""Say what stands in each table of personalisation: every method on one set of clients.

All rows of a table have the same clients, rounds, cohort, local training and, but for those whose
name says otherwise, the same network. Methods keep the options that their papers give
(``models.settings.personalisation``).
"""

from benchmarks.tables.definition import Row, TableDefinition

THREE = (1, 2, 3)
ACCURACY = ("accuracy", "accuracy_clients_mean", "accuracy_clients_worst_decile")

METHODS = {
    "Local": '{method="local"}',
    "FedAvg": '{method="global"}',
    "FedProx": '{method="fedprox"}',
    "FedPer": '{method="fedper"}',
    "FedRep": '{method="fedrep"}',
    "pFedMe": '{method="pfedme"}',
    "FedRoD": '{method="fedrod"}',
    "Ditto": '{method="ditto"}',
    "pFedGP": '{method="pfedgp"}',
    "pFedHN": '{method="pfedhn"}',
    "vanilla": '{method="vanilla"}',
    "FedTP": '{method="fedtp"}',
    "FedTP, literal output": '{method="fedtp", hypernetwork={output="literal"}}',
    "FedTP, fixed embeddings": '{method="fedtp", hypernetwork={embeddings="fixed"}}',
    "FedTP+FedPer": '{method="fedtp", head="personal"}',
    "FedTP+FedRoD": '{method="fedtp", head="balanced"}',
    "FedTP+kNN": '{method="fedtp", neighbours={}}',
}
VARIANTS = ("FedTP, literal output", "FedTP, fixed embeddings")
# The networks of their papers: FedBN is about batch norms, pFedHN and pFedGP are about ConvNets.
ON_A_CONVNET = ("Local", "FedAvg", "FedPer", "FedRoD", "pFedGP")
# At the others' step size a generated ConvNet's clients diverge; [pFedHN] takes steps of 0.005.
_SMALL_STEPS = "training.learning_rate=0.01"

_DIGITS_CONVNET = (
    'model={family="convnet", class_count=10, image_size=8, channel_count=1, pixel_mean=[0.305], '
    "pixel_std=[0.376], padding=2}"
)
_CIFAR_CONVNET = 'model={family="convnet", class_count=10}'
# As many parameters as the preset's Transformer: 79,500 and 79,360.
_LSTM = 'model={family="char_lstm", context_size=80, hidden_size=75}'


def _rows(convnet: str, beside: tuple[int, ...]) -> tuple[Row, ...]:
    """Return a row for every method on the preset's ViT, then those on a ConvNet.

    Args:
        convnet: The ConvNet's settings.
        beside: Seeds of the rows beside the comparison: variants of FedTP, and the ConvNet.
    """
    normed = convnet.replace("}", ", batch_norm=true}")
    return (
        *(
            _row(name, method, beside if name in VARIANTS else THREE)
            for name, method in METHODS.items()
        ),
        *(_row(f"{name}, ConvNet", METHODS[name], beside, convnet) for name in ON_A_CONVNET),
        _row("pFedHN, ConvNet, step size 0.01", METHODS["pFedHN"], beside, convnet, _SMALL_STEPS),
        _row("FedAvg, ConvNet with batch norm", METHODS["FedAvg"], beside, normed),
        _row("FedBN, ConvNet with batch norm", '{method="fedbn"}', beside, normed),
    )


def _row(name: str, method: str, seeds: tuple[int, ...], *settings: str) -> Row:
    return Row(name, (f"personalisation={method}", *settings), seeds)


def _images(
    title: str, preset: str, rows: tuple[Row, ...], minutes: float, *settings: str
) -> TableDefinition:
    return TableDefinition(
        title=title,
        preset=preset,
        rows=rows,
        minutes=minutes,
        figures=ACCURACY,
        curve=None,
        references=(),
        settings=settings,
    )


# What FedTP's Table IV compares, by the name it has here.
IN_THE_PAPER = (
    "Local",
    "FedAvg",
    "FedProx",
    "FedPer",
    "pFedMe",
    "FedRoD",
    "pFedGP",
    "pFedHN",
    "vanilla",
    "FedTP",
)


def _paper(dataset: str, client_count: int, deal: str) -> TableDefinition:
    """Return a setting of FedTP's Table IV: deal, size and length are the paper's.

    Args:
        dataset: ``cifar10`` or ``cifar100``.
        client_count: 50 or 100.
        deal: Name of the partition with its setting, as in ``[data]``.
    """
    data = f'data={{dataset="{dataset}", client_count={client_count}, {deal}}}'
    share = 0.1 if client_count == 50 else 0.05
    return TableDefinition(
        title=f"{dataset}, {client_count} clients, {deal}, ViT of eight blocks, 1,500 rounds",
        preset=f"fedtp-{dataset}-paper",
        rows=tuple(_row(name, METHODS[name], (1,)) for name in IN_THE_PAPER),
        minutes=None,
        figures=ACCURACY,
        curve=None,
        references=(),
        settings=(data, f"rounds.participation_rate={share}"),
    )


_DIRICHLET = 'partition="dirichlet-labels", concentration=0.3'
PAPER_TABLES = {
    f"{dataset}-{client_count}-{name}": _paper(dataset, client_count, deal)
    for dataset, classes in (("cifar10", 2), ("cifar100", 10))
    for client_count in (50, 100)
    for name, deal in (
        ("pathological", f'partition="pathological", classes_per_client={classes}'),
        ("dirichlet", _DIRICHLET),
    )
}
"""The settings of FedTP's Table IV. They want a GPU and have not been run."""

TABLES = {
    "fedtp-digits": _images(
        "Digits, 20 clients of two classes each, 60 rounds of 5 local epochs, half of them a round",
        "fedtp-digits",
        _rows(_DIGITS_CONVNET, THREE),
        50,
    ),
    "fedtp-cifar10": _images(
        "CIFAR-10, a tenth of the images on 20 clients of two classes each, 60 rounds of a quarter",
        "fedtp-cifar10",
        _rows(_CIFAR_CONVNET, (1,)),
        95,
        "rounds.cap=60",  # The preset's 100 with three seeds of every row would take six hours.
    ),
    "fedtp-heads": _images(
        "CIFAR-10 as in fedtp-cifar10, for 150 rounds: what makes FedTP's attention",
        "fedtp-cifar10",
        tuple(_row(name, METHODS[name], (1,)) for name in ("FedTP", VARIANTS[0], "vanilla")),
        20,
        "rounds.cap=150",
    ),
    "fedtp-shakespeare": TableDefinition(
        title="Shakespeare, next character, causal: 50 roles, 40 rounds of a tenth of them",
        preset="fedtp-shakespeare",
        rows=(
            *(_row(name, METHODS[name], THREE) for name in ("FedAvg", "vanilla", "FedTP")),
            _row("FedAvg, LSTM", METHODS["FedAvg"], THREE, _LSTM),
        ),
        minutes=20,
        figures=(*ACCURACY, "perplexity"),
        curve=None,
        references=(),
        settings=("rounds.cap=40",),
    ),
}

QUICK = {
    "quick": TableDefinition(
        title="The machinery: some methods for three rounds on the digits",
        preset="fedtp-digits",
        rows=tuple(
            _row(name, METHODS[name], (1, 2)) for name in ("Local", "FedAvg", "FedPer", "FedTP")
        ),
        minutes=1,
        figures=ACCURACY,
        curve=None,
        references=(),
        settings=("rounds.cap=3", "training.local_epochs=1"),
    )
}
