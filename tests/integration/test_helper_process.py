"""A helper's own process, killed at the worst moments, and ended as an operator ends it."""

import asyncio
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from server.helper.folder import HelperFolder
from server.helper.running import run_helper
from server.records.failpoints import Failpoints
from tests.forking import ForkedCommand
from tests.server.helper.scene import Parties, ask, kept_by, make_parties, terms_of
from tests.waiting import until


def serve_until_it_dies(arguments: list[str]) -> int:
    """Run a helper that dies at a failpoint, which no command line can arm."""
    root, moment = arguments

    def tell(port: int) -> None:
        sys.stderr.write(f"helper on port {port}\n")

    folder, failpoints = HelperFolder(Path(root)), Failpoints(moment)
    asyncio.run(run_helper(folder, failpoints=failpoints, on_ready=tell))
    return 0


def start_dying(root: Path, moment: str, log: Path) -> tuple[ForkedCommand, int]:
    """Fork such a helper and return it with its port."""
    process = ForkedCommand(serve_until_it_dies, [str(root), moment], log)
    listening = until(
        lambda: log.exists() and re.search(r"^helper on port (\d+)$", log.read_text(), re.MULTILINE)
    )
    assert listening
    return process, int(listening[1])


def start(*command: str) -> tuple["subprocess.Popen[str]", int]:
    """Start a helper and return it with its port."""
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    listening = re.fullmatch(r"helper on port (\d+)\n", process.stdout.readline())
    assert listening is not None
    return process, int(listening[1])


@pytest.mark.slow
@pytest.mark.usefixtures("no_forks_left")
@pytest.mark.parametrize("moment", ["answer_made", "answer_kept"])
def test_a_helper_that_was_killed_gives_the_answer_that_it_would_have_given(
    moment: str, tmp_path: Path
) -> None:
    parties = make_parties(tmp_path, device_count=2)
    folder = parties.folder
    terms = terms_of()
    members = parties.members([0, 1], terms)
    dying, port = start_dying(folder.root, moment, tmp_path / "dying.log")
    # The next process listens where this one did.
    folder.settings.write_text(folder.settings.read_text().replace(":0", f":{port}"))

    async def close() -> tuple[bytes, bytes]:
        address = f"127.0.0.1:{port}"
        asking = asyncio.create_task(ask(parties, address, terms, members, for_s=60))
        assert await asyncio.to_thread(dying.wait, 60) == -signal.SIGKILL
        listed = folder.open_answers(folder.read_settings()).listed()
        assert len(listed) == (1 if moment == "answer_kept" else 0)
        running, _ = await asyncio.to_thread(
            start, "-m", "server.helper.cli", "run", str(folder.root)
        )
        try:
            first = await asking
            return first, await ask(parties, address, terms, members, for_s=60)
        finally:
            running.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(running.wait, 60) == 0

    first, again = asyncio.run(close())

    assert first == again
    assert_one_answer(parties)


def assert_one_answer(parties: Parties) -> None:
    listed = parties.folder.open_answers(parties.folder.read_settings()).listed()
    kept = kept_by(parties)
    assert [kept.newest] == listed
