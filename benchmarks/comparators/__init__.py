"""Peers that benchmarks measure against, each run by its own public interface."""
