"""One page of runs side by side: settings that differ, figures over seeds, curves, budgets."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from models.pages.by_round import Course, legend, sections
from models.pages.curves import STYLE, figure_in_words, titled
from models.pages.document import Html, document, element, facts, table
from models.pages.ledger_proof import proof
from models.tasks.figures import quality_of
from privacy.noise.plan_events import budgets_of
from simulation.commands.reported_runs import ReportedRun, differing, groups_of
from simulation.figures.metrics import Value, round_of
from simulation.figures.over_seeds import OverSeeds, over_seeds

_Group = Sequence[ReportedRun]
_MOST_TOLD = 3
_OF_OTHER_WORDS = ("vocabulary.", "model.vocabulary_size", "data.")


def runs_page(runs: Sequence[ReportedRun]) -> str:
    """Return the page as HTML."""
    groups, paths = groups_of(runs), differing(runs)
    names = [_name(group, paths) for group in groups]
    contents = [
        *_runs(runs),
        *_settings(groups, names, paths),
        element("h2", "Figures at the end"),
        *_finals(groups, names),
        element("h2", "Rounds"),
        *_rounds(groups, names, paths),
        element("h2", "Privacy"),
        *_privacy(groups, names),
    ]
    title = runs[0].folder.resolve().name if len(runs) == 1 else f"{len(runs)} runs side by side"
    return document(title, contents, style=STYLE)


def _name(group: _Group, paths: Sequence[str]) -> str:
    """Return what a group is called: by the few settings that make it, or by its first run."""
    if not paths:
        return group[0].name if len(group) == 1 else f"{len(group)} seeds"
    if len(paths) > _MOST_TOLD:
        return group[0].name if len(group) == 1 else f"{group[0].name} and other seeds"
    return ", ".join(f"{path.rpartition('.')[2]} {group[0].settings.get(path)}" for path in paths)


def _runs(runs: Sequence[ReportedRun]) -> Iterator[Html]:
    config = runs[0].config
    yield facts([("task", config.task.replace("_", " ")), ("data set", config.data.dataset)])
    rows = []
    for run in runs:
        done, cap = round_of(run.rows[-1]) if run.rows else 0, run.config.rounds.cap
        state = f"over after {done} rounds" if run.final is not None else f"{done} of {cap} rounds"
        number, digest = run.model or (None, "")
        model = element("code", f"{digest[:16]}…") if digest else Html("none yet")
        of_round = "" if number is None else str(number)
        rows.append((run.name, state, model, of_round, str(run.config.seed)))
    yield table(("run", "state", "model, SHA-256", "of round", "seed"), rows, words=3)


def _settings(
    groups: Sequence[_Group], names: Sequence[str], paths: Sequence[str]
) -> Iterator[Html]:
    if len(groups) == 1:
        if len(groups[0]) > 1:
            yield element("p", "The runs differ by their seed alone.")
        return
    yield element("h2", "Settings that differ")
    rows = [
        (element("code", path), *(group[0].settings.get(path, "") or "absent" for group in groups))
        for path in paths
    ]
    yield table(("setting", *names), rows, words=1 + len(groups))
    if any(path.startswith(_OF_OTHER_WORDS) for path in paths):
        yield element(
            "p",
            "Word lists or examples differ: a perplexity and a recall compare only over the same "
            "words of the same people.",
        )


def _finals(groups: Sequence[_Group], names: Sequence[str]) -> Iterator[Html]:
    over = [[run.final for run in group if run.final is not None] for group in groups]
    if not any(over):
        yield element("p", "No run is over: figures at the end come with its last round.")
        return
    figures = dict.fromkeys(name for finals in over for final in finals for name in final)
    ordered = sorted(figures, key=lambda name: quality_of(name) is None)
    rows = []
    for figure in ordered:
        values = [
            {place: final[figure] for place, final in enumerate(finals) if figure in final}
            for finals in over
        ]
        if not any(isinstance(value, str) for value in _flattened(values)):
            rows.append((titled(figure), *_cells(figure, values)))
    yield table(("figure", *names), rows)
    if any(len(group) > 1 for group in groups):
        yield element("p", "Mean ± sample standard deviation over seeds.")
    if any(len(finals) < len(group) for finals, group in zip(over, groups, strict=True)):
        yield element("p", "Runs that are not over are left out.")


def _flattened(values: Sequence[Mapping[int, Value]]) -> list[Value]:
    return [value for by_seed in values for value in by_seed.values()]


def _cells(figure: str, values: Sequence[Mapping[int, Value]]) -> list[Html]:
    """Return a figure of each group, the best of several in bold."""
    summed, quality = [over_seeds(by_seed) for by_seed in values], quality_of(figure)
    means = [one.mean for one in summed if one.mean is not None]
    best = None
    if quality is not None and len(means) > 1:
        best = max(means) if quality.more_is_better else min(means)
    told = [_in_words(one) for one in summed]
    return [
        element("b", text) if best is not None and one.mean == best else Html(escape(text))
        for text, one in zip(told, summed, strict=True)
    ]


def _in_words(one: OverSeeds) -> str:
    lost = f", {len(one.lost)} lost" if one.lost else ""
    if one.mean is None:
        return "not finite" if one.lost else "not told"
    spread = ""
    if one.spread:
        spread = f" ± {one.spread:,.0f}" if one.spread >= 100 else f" ± {one.spread:.2g}"
    return f"{figure_in_words(one.mean)}{spread}{lost}"


def _rounds(groups: Sequence[_Group], names: Sequence[str], paths: Sequence[str]) -> Iterator[Html]:
    is_told = 0 < len(paths) <= _MOST_TOLD
    courses = [
        Course(
            f"{name}, seed {run.config.seed}" if is_told and len(group) > 1 else run.name,
            colour,
            [(round_of(row), row) for row in run.rows],
        )
        for colour, (group, name) in enumerate(zip(groups, names, strict=True))
        for run in group
        if run.rows
    ]
    if not courses:
        yield element("p", "No round is over yet: there is no figure to show.")
        return
    if len(groups) > 1:
        yield legend(dict(enumerate(names)))
    yield from sections(courses)


def _privacy(groups: Sequence[_Group], names: Sequence[str]) -> Iterator[Html]:
    # Here, because it imports torch, which takes a second.
    from server.config.start_lines import promises

    promised: dict[str, list[str]] = {}
    for group, name in zip(groups, names, strict=True):
        for line in promises(group[0].config):
            promised.setdefault(line, []).append(name)
    for line, whose in promised.items():
        of = "" if len(whose) == len(groups) else f" by {'; '.join(whose)}"
        yield element("p", element("b", f"Promised{of}"), f": {line}.")
    runs = [run for group in groups for run in group]
    for run in runs:
        if run.ledger is not None:
            parts = proof(*run.ledger, budgets_of(run.config.privacy), path=str(run.folder))
            if len(runs) == 1:
                yield from parts
            else:
                epsilon = run.ledger[1].readers.epsilon
                told = f"{run.name}: epsilon {epsilon:.4g} spent"
                yield element("details", element("summary", told), *parts)
