"""The steps of a start as they are done: a live bar on a terminal, else a line now and then."""

from rich.progress import TextColumn

from simulation.figures.progress import LiveBar

_LINE_STEPS = 200
_KEPT = 0.98


class StepsBar(LiveBar):
    """A bar of steps with their mean loss, newer ones weighing more."""

    def __init__(self, total: int) -> None:
        super().__init__(TextColumn("{task.fields[line]}"))
        self._total = total
        self._loss: float | None = None
        self._task = self._bar.add_task("start", total=total, line="")

    def stepped(self, done: int, loss: float) -> None:
        """Show a step, from 1, and its loss in nats a token."""
        self._loss = loss if self._loss is None else _KEPT * self._loss + (1 - _KEPT) * loss
        line = f"loss {self._loss:.3f}"
        if self._console.is_terminal:
            self._bar.update(self._task, completed=done, line=line)
        elif done % _LINE_STEPS == 0 or done == self._total:
            self._console.print(f"start: step {done}/{self._total}: {line}")
