"""Privacy of one sentence within one person's update (DP-SGD).

Begin with ``settings``. Imports ``accounting`` alone; Opacus (with torch) is loaded only to count.
Each device accounts for itself; nothing here knows a coordinator.
"""
