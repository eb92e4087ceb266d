"""Look at a device's own text by its owner's settings and the word list of the last plan."""

from pathlib import Path

from edge_client.agent.word_lists import last_word_list
from edge_client.folder.layout import DeviceFolder, DeviceFolderError
from edge_client.owner.finding import Finding
from edge_client.owner.own_data import examine_data
from edge_client.owner.settings import ClientSettingsError, read_client_settings
from models.plan.plan import PlanError
from models.plan.signed_plan import SignedPlanError
from models.text.vocabulary import VocabularyError


def examine_own_data(folder: DeviceFolder, data: Path, *, now: float) -> list[Finding]:
    """Return findings about the text at ``data``; ``now`` is seconds since 1970 UTC."""
    try:
        limits = read_client_settings(folder.client_settings).text
        name, words = last_word_list(folder)
    except (
        ClientSettingsError,
        DeviceFolderError,
        PlanError,
        SignedPlanError,
        VocabularyError,
    ) as error:
        return [Finding("text", False, str(error))]
    return examine_data(data, limits, words, list_name=name, now=now)
