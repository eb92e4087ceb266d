from edge_client.objective import PlainObjective, build_objective
from models.parameters import initial_parameters
from models.personalisation_settings import GlobalSettings
from models.tasks import task_named
from tests.edge_client.training_plan import MODEL

PARAMETERS = initial_parameters(MODEL, seed=3)


def test_a_method_without_an_objective_of_its_own_trains_plainly() -> None:
    objective = build_objective(GlobalSettings(), task_named("next_word"), PARAMETERS)

    assert isinstance(objective, PlainObjective)
