"""The page on which people type with their own model in a browser.

Begin with ``page_files``. Loads no torch; every file has a digest that the page checks.
"""
