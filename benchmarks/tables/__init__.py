"""Tables of results: which runs they hold, how runs are made and kept, and how they are printed."""
