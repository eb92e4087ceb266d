"""Keep a device's personal model: the one that counts, and one whose update is still on its way.

Training makes an update and a new personal state, which waits, named after the sealed update, until
the coordinator has acknowledged that update, and then takes the old one's place by one rename. From
then on it counts, also if the round comes to nothing: the device is not told, and a simulation does
the same. A fit of a new device counts at once. A crash at any moment leaves the old or the new one,
never half. No torch: the resting agent decides here.
"""

from pathlib import Path

from privacy.foundation.atomic_files import sync_folder


class PersonalFolder:
    """At most one state that counts, from the first acknowledged round on, and one that waits."""

    def __init__(self, path: Path) -> None:
        """Use a folder; it is made, owner-only, when a state is to wait in it."""
        self.current = path / "current.state"
        self._path = path

    def waiting(self, message_id: bytes) -> Path:
        """Return the place for the state that came with a sealed update."""
        if not self._path.exists():
            self._path.mkdir(mode=0o700)
            sync_folder(self._path.parent)
        return self._path / f"waiting-{message_id.hex()}.state"

    def waits_for(self, message_id: bytes) -> bool:
        """Return whether a state waits for this sealed update to be acknowledged."""
        return (self._path / f"waiting-{message_id.hex()}.state").exists()

    def accept(self, message_id: bytes) -> None:
        """Let the state that waited for an update count, if there is one; repeating is harmless."""
        if self.waits_for(message_id):
            self.waiting(message_id).replace(self.current)
            sync_folder(self._path)
        self.drop()

    def drop(self) -> None:
        """Delete what waits: its update will never count."""
        for path in self._path.glob("waiting-*.state"):
            path.unlink()
