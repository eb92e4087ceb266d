"""Found the federation and enrol its devices, with the commands an operator would type."""

import re
from dataclasses import dataclass
from pathlib import Path

from examples.keyboard.devices import Deal
from examples.keyboard.processes import free_ports, run, run_beside, sotto
from server.config.federation import FederationConfig, read_config

ROUNDS = 10


@dataclass(frozen=True)
class Place:
    """Say where the demonstration keeps its files.

    Attributes:
        folder: Everything; made anew each time.
    """

    folder: Path

    @property
    def coordinator(self) -> Path:
        """The coordinator's folder."""
        return self.folder / "coordinator"

    @property
    def starting_bundle(self) -> Path:
        """The keyboard that the run starts from, exported."""
        return self.folder / "starting-keyboard"

    @property
    def bundle(self) -> Path:
        """The keyboard that the run ends in, exported."""
        return self.folder / "keyboard"


def found_federation(place: Place, hands: Deal, rounds: int | None) -> FederationConfig:
    """Found a federation for five devices that scores each round on the held-out text."""
    founding = ("--preset", "keyboard", "--hostname", "127.0.0.1")
    run(sotto("server", "init", place.coordinator, *founding))
    (place.coordinator / "held_out.txt").write_text(
        "\n".join(" ".join(sentence) for sentence in hands.held_out), encoding="utf-8"
    )
    settings = place.coordinator / "federation.toml"
    text = settings.read_text(encoding="utf-8")
    enrolment, devices = free_ports(2)
    changes = {
        "cap": str(ROUNDS if rounds is None else rounds),
        "cohort_size": str(len(hands.folders)),
        "quorum": str(len(hands.folders) - 1),
        "deadline_s": "180.0",
        "enrolment": f'"127.0.0.1:{enrolment}"',
        "devices": f'"127.0.0.1:{devices}"',
    }
    for name, value in changes.items():
        text = re.sub(rf"(?m)^{name} = .*$", f"{name} = {value}", text)
    text += '\n[evaluation]\nkind = "public"\npublic_text = "held_out.txt"\n'
    settings.write_text(text, encoding="utf-8")
    return read_config(settings)


def enrol_devices(place: Place, hands: Deal) -> None:
    """Invite and enrol every device; the coordinator must be running."""
    count = str(len(hands.folders))
    invites = run(sotto("server", "token", place.coordinator, "--count", count)).splitlines()
    devices = [text.parent for text in hands.folders]
    commands = [
        # The demonstration's noise promises nothing, and its devices say that they know.
        sotto("client", "enrol", device, "--invite", invite, "--accept-no-guarantee")
        for device, invite in zip(devices, invites, strict=True)
    ]
    with run_beside(*commands):
        pass
    for device in devices:
        # This machine is not idle, and five training processes start faster once than each round.
        (device / "client.toml").write_text("keep_warm_s = 60.0\n[policy]\nidle = false\n")
