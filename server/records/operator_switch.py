"""The operator's wish: rounds to pause, or the process to stop after this one."""

from pathlib import Path


class OperatorSwitch:
    """A pause, which a file keeps over restarts, and a drain, which ends with the process."""

    def __init__(self, pause_mark: Path) -> None:
        self.is_draining = False
        self._pause_mark = pause_mark

    @property
    def is_paused(self) -> bool:
        """Return whether no new round may open."""
        return self._pause_mark.exists()

    def pause(self) -> None:
        """Open no new round."""
        self._pause_mark.touch(mode=0o600)

    def resume(self) -> None:
        """Open rounds again."""
        self._pause_mark.unlink(missing_ok=True)

    def drain(self) -> None:
        """Stop when the running round has ended."""
        self.is_draining = True
