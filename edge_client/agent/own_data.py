"""Look at a device's own data by its owner's settings and what the last plan learns from."""

from pathlib import Path

from edge_client.agent.word_lists import last_plan, last_word_list
from edge_client.folder.layout import DeviceFolder, DeviceFolderError
from edge_client.owner.finding import Finding
from edge_client.owner.own_data import examine_data
from edge_client.owner.own_recordings import examine_recordings
from edge_client.owner.settings import ClientSettingsError, read_client_settings
from models.plan.plan import PlanError
from models.plan.signed_plan import SignedPlanError
from models.settings.voice import TransformerTtsSettings
from models.text.vocabulary import VocabularyError


def examine_own_data(folder: DeviceFolder, data: Path, *, now: float) -> list[Finding]:
    """Return findings about the text at ``data``, or the recordings if the last plan is a voice's.

    ``now`` is seconds since 1970 UTC.
    """
    try:
        plan = last_plan(folder)
        if plan is not None and isinstance(plan.model, TransformerTtsSettings):
            return examine_recordings(data, plan.model)
        limits = read_client_settings(folder.client_settings).text
        name, words = last_word_list(plan, folder.word_lists)
    except (
        ClientSettingsError,
        DeviceFolderError,
        PlanError,
        SignedPlanError,
        VocabularyError,
    ) as error:
        return [Finding("text", False, str(error))]
    return examine_data(data, limits, words, list_name=name, now=now)
