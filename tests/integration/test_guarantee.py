from tests.integration.conftest import Make


def test_a_coordinator_says_at_its_start_what_its_noise_promises(make_federation: Make) -> None:
    federation = make_federation()
    federation.start()
    assert federation.process is not None
    assert federation.process.stdout is not None

    line = federation.process.stdout.readline()

    assert line.startswith("privacy: none")
    assert "no privacy guarantee" in line
