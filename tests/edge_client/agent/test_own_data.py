"""The doctor looks at the kind of data that the device's last plan learns from."""

from pathlib import Path

import pytest

from edge_client.agent.own_data import examine_own_data
from edge_client.folder.layout import DeviceFolder
from models.plan.plan import Plan
from models.plan.signed_plan import SignedPlan
from tests.edge_client.training_plan import make_plan
from tests.export.voices import speech_plan


@pytest.mark.parametrize(
    ("plan", "subject"), [(speech_plan(), "recordings"), (make_plan(), "text"), (None, "text")]
)
def test_a_voices_plan_wants_recordings_and_all_others_text(
    tmp_path: Path, plan: Plan | None, subject: str
) -> None:
    folder = DeviceFolder(tmp_path / "device")
    folder.path.mkdir()
    if plan is not None:
        folder.note_signed_plan(
            SignedPlan(
                run="0" * 32,
                round_number=1,
                attempt=0,
                plan=plan.encode(),
                signature=b"",
                certificate=b"",
            ).encode()
        )

    found = examine_own_data(folder, tmp_path / "nothing", now=0.0)

    assert [(one.subject, one.good) for one in found] == [(subject, False)]
