"""Make everybody whom a plugin's data set has a client, tested on their own newest fifth."""

from collections.abc import Mapping
from pathlib import Path

from edge_client.datasets.row_parts import cut_rows
from models.plugins.parts import Part
from models.settings.plugin import broken_part
from models.tasks.plugin_task import own_model, plugin_task
from models.tasks.rows import Rows
from simulation.config.simulation import SimulationConfig
from simulation.population.population import Population, PopulationError, client_name


def build_row_population(config: SimulationConfig, path: Path | None) -> Population:
    """Have the plugin's task read the data set, and cut each person's examples as a device does.

    With ``data.client_count`` the people with the most examples are kept.

    Raises:
        PluginError: If the task is broken.
        PopulationError: If it has no such data set, or too few people in it.
    """
    people = _people(config, path)
    wanted = config.data.client_count or len(people)
    if not 1 <= wanted <= len(people):
        raise PopulationError(
            f"data set {config.data.dataset!r} must have at least {wanted} people, got "
            f"{len(people)}; lower data.client_count"
        )
    most = sorted(people, key=lambda person: (-len(people[person]), person))[:wanted]
    parts = {
        client_name(number): cut_rows(people[person])
        for number, person in enumerate(sorted(most), start=1)
    }
    train, valid, test = (
        {name: cut[part] for name, cut in parts.items() if len(cut[part])} for part in range(3)
    )
    return Population(clients=train, own_valid=valid, own_test=test, held_out={})


def _people(config: SimulationConfig, path: Path | None) -> Mapping[str, Rows]:
    task, settings = plugin_task(config.task), own_model(config.model, config.task)
    try:
        people = task.people(config.data.dataset, path, settings)
    except (ValueError, OSError) as error:
        raise PopulationError(f"data set {config.data.dataset!r}: {error}") from None
    except Exception as error:
        raise broken_part(Part.TASKS, config.task, error) from error
    return {person: rows for person, rows in people.items() if len(rows)}
