"""The steps of a start as they are done: a live bar on a terminal, else a line now and then."""

from rich.progress import TextColumn

from simulation.figures.progress import LiveBar

_STEPS = ("step", 200, 0.98)
_PASSES = ("pass", 1, 0.0)
"""What is counted, after how many a line is shown, and how much an earlier loss weighs."""


class StepsBar(LiveBar):
    """A bar of steps with their mean loss, newer ones weighing more; or of whole passes."""

    def __init__(self, total: int, *, passes: bool = False) -> None:
        super().__init__(TextColumn("{task.fields[line]}"))
        self._total = total
        self._unit, self._every, self._kept = _PASSES if passes else _STEPS
        self._loss: float | None = None
        self._task = self._bar.add_task("start", total=total, line="")

    def stepped(self, done: int, loss: float) -> None:
        """Show a step or pass, from 1, and its loss."""
        self._loss = (
            loss if self._loss is None else self._kept * self._loss + (1 - self._kept) * loss
        )
        line = f"loss {self._loss:.3f}"
        if self.is_live:
            self._bar.update(self._task, completed=done, line=line)
        elif done % self._every == 0 or done == self._total:
            self._console.print(f"start: {self._unit} {done}/{self._total}: {line}")
