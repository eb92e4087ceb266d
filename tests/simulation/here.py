"""Runs that start no process: the same bits, without the time that processes wait for each other.

That worker processes make them too is for ``test_own_process.py``, and for tests of several.
"""

from simulation.runs.runner import RunOptions
from simulation.workers.own_process import OwnProcess

HERE = RunOptions(engine=OwnProcess)
