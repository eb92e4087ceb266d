"""The figures of a release say what somebody could see, and nothing else."""

import torch

from server.closing.close import Closed
from server.coordinating.round_figures import figures_of_updates
from server.machine.answers import Close

ORDER = Close(round_number=1, attempt=0, slot_count=3, receipts=())


def test_no_release_counts_clips_that_nobody_saw_under_masks() -> None:
    seen = Closed(torch.zeros(1), 3, 0, None)
    masked = Closed(torch.zeros(1), 3, None, None)

    assert figures_of_updates(ORDER, seen, {}) == {"contributions": 3, "clipped": 0}
    assert figures_of_updates(ORDER, masked, {}) == {"contributions": 3}
