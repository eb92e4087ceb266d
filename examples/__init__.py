"""Programs that show sotto at work with real processes."""
