"""The defaults of ``listen``. No torch, since ``--help`` names it too."""

RECOGNISER_EPOCHS = 15
"""Passes of the recogniser over the training clips."""

GRIFFIN_LIM_ITERATIONS = 60
"""Steps of its search for phases."""
