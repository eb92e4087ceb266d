"""The wire contract, its generated code, its version and its refusals.

``federation.proto`` and ``keyboard.proto`` are the contract; ``generate`` makes the rest. Imports
nothing of the project.
"""
