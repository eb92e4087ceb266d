"""Pieces that several benchmarks share, and single measurements of a table."""
