"""The check of the manifests: schemas as Kubernetes publishes them, and rules of our own, offline.

Begin with `manifests.py`, which reads a kustomization; every other file holds the rules about one
thing and returns a line for each that is broken. May import every package, and nothing imports it
but tests.
"""
