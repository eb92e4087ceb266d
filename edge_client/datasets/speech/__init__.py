"""Recordings with their texts: LJ Speech, AN4, spoken digits, folders and embedded voices.

Imports no other room of ``datasets``.
"""
