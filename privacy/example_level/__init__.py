"""Privacy of one sentence within one person's update (DP-SGD).

Begin with ``settings``. Each device accounts for itself; nothing here knows a coordinator.
"""
