"""Have a job done, once more without the data where a process that died would tell of them."""

import logging

import msgspec

from edge_client.jobs.job import TRAINING_DIED, Failed, Job, Outcome
from edge_client.jobs.training_process import Trainer
from models.plan.onlookers import hides_from_coordinator
from models.plan.plan import Plan

logger = logging.getLogger(__name__)


async def outcome_of(job: Job, plan: Plan, trainer: Trainer) -> Outcome:
    """Return what comes of a job.

    Where the plan hides the data from the coordinator, a process that the system ended, most likely
    for the memory that these data took, is no answer: another makes one without reading them.
    """
    outcome = await trainer.run(job)
    died = isinstance(outcome, Failed) and outcome.code == TRAINING_DIED
    if not (died and hides_from_coordinator(plan)):
        return outcome
    logger.warning("round %d: training died; answered without data", job.round_number)
    return await trainer.run(msgspec.structs.replace(job, leaves_data_out=True))
