import subprocess
import sys

from tests.integration.conftest import Make


def test_a_coordinator_says_at_its_start_what_its_noise_promises(make_federation: Make) -> None:
    root = make_federation().root
    command = [sys.executable, "-P", "-c", "import sys; from server.entry import main; main()"]

    with subprocess.Popen([*command, "run", str(root)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        lines = [run.stdout.readline() for _ in range(2)]
        run.terminate()

    assert "devices on port" in lines[0]
    assert lines[1] == "privacy: none: no noise, no privacy guarantee\n"
