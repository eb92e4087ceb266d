"""Masks: updates that say nothing one by one, and whose sum is the sum of the updates.

Begin with ``mask_form``, which names the vector that a mask fits, then ``sealed_seed``, which
carries a mask's seed to the helper, and ``helper_answer``, which the helper signs. Imports
``sealing`` and what lies below it; no torch. A seed is used for one vector of one attempt and for
nothing else.
"""
