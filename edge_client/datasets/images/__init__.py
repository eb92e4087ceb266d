"""Labelled images: CIFAR, scikit-learn's digits and a person's own ``.npz``.

Imports no other room of ``datasets``.
"""
