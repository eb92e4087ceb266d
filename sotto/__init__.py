"""Sotto from Python: runs, sweeps, budgets, keyboards and voices, as the commands have them.

The only package that promises stability: what is named in ``__all__`` keeps its name, its arguments
and its meaning. Begin with ``simulating``. It stands above ``simulation``, and each function is a
few lines over what a command does. Importing it loads nothing; the first use of a name loads what
that name needs, so a keyboard loads no torch.
"""

TYPE_CHECKING = False  # As a type checker reads it too, without loading ``typing``.

if TYPE_CHECKING:
    from sotto.budgets import epsilon, noise_for
    from sotto.keyboards import Keyboard
    from sotto.people import personal
    from sotto.runs import Run, Sweep
    from sotto.simulating import simulate, sweep
    from sotto.voices import Voice

__all__ = [
    "Keyboard",
    "Run",
    "Sweep",
    "Voice",
    "epsilon",
    "noise_for",
    "personal",
    "simulate",
    "sweep",
]

# By name: the module that has it, and the extra that it needs.
_HOMES = {
    "Keyboard": ("keyboards", "export"),
    "Run": ("runs", "simulation"),
    "Sweep": ("runs", "simulation"),
    "Voice": ("voices", "speak"),
    "epsilon": ("budgets", "server"),
    "noise_for": ("budgets", "server"),
    "personal": ("people", "export"),
    "simulate": ("simulating", "simulation"),
    "sweep": ("simulating", "simulation"),
}


if not TYPE_CHECKING:  # A type checker refuses a name that is not there.

    def __getattr__(name: str) -> object:
        """Load a name of ``__all__`` when it is first used.

        Raises:
            ImportError: If a stranger's package has one of sotto's names, or an extra is missing.
        """
        if name not in _HOMES:
            raise AttributeError(f"sotto has no {name!r}; it has {', '.join(__all__)}")
        import importlib

        from sotto.one_home import check_one_home

        check_one_home()
        module, extra = _HOMES[name]
        try:
            found = getattr(importlib.import_module(f"sotto.{module}"), name)
        except ModuleNotFoundError as error:
            raise ImportError(
                f"sotto.{name} needs {error.name}, which is missing; install sotto[{extra}]"
            ) from None
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """Return the names that a notebook completes."""
    return sorted(__all__)
