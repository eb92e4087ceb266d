"""Keys, certificates and signatures of coordinators, devices and authorities.

Begin with ``party``, which keeps one party's keys on disk; ``authority`` certifies them and
``invite`` is how a device gets in. Imports ``foundation`` alone; no torch. Every check of a
certificate states the use and role that it must have been issued for.
"""
