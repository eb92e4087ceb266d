"""The model on its way to devices: sealed once for a round, with a slip for each device.

Begin with ``model_shelf``. Generated tensors are sealed to one device alone.
"""
