"""What `benchmarks.storm` raises against a federation, a fault a file, and their book."""
