"""A whole federation in one process: presets, runs, sweeps, searches and audits.

The top floor: it imports every other package and drives the coordinator's and the device's own
parts. The command line is ``cli``. Begin with ``runs.runner``. The same updates give the same bits
as a deployment.
"""
