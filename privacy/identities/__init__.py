"""Keys, certificates and signatures of coordinators, devices and authorities.

Begin with ``party``, which holds one party's keys on disk. Loads no torch. Every check of a
certificate states the role that it must have been issued for.
"""
