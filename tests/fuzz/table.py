"""The table of a fuzzing run, line by line as targets end."""

from tests.fuzz.guided import Found


def heading() -> str:
    """Return the names of the columns."""
    return f"{'target':<34}{'executions':>11}{'crashes':>9}{'slowest s':>11}{'peak MB':>9}"


def printed(found: Found) -> str:
    """Return a target's line, and one for each problem with how to see it again."""
    line = (
        f"{found.target:<34}{found.executions:>11}{found.crashes:>9}"
        f"{found.slowest_s:>11.3f}{found.peak_mb:>9.0f}"
    )
    return "\n".join([line, *(f"    {problem}" for problem in found.problems)])
