"""One run or many, from configuration to last figures; stopped runs go on.

Begin with ``runner``. A stopped run ends with the same bits as one that was never stopped.
"""
