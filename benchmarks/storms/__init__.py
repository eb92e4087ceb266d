"""What `benchmarks.storm` raises against a federation: one fault a file, and the book they are counted in."""
