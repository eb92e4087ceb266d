"""The demo: five devices train a keyboard, which is exported and typed with."""
