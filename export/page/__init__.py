"""The page on which people type with their own model in a browser.

Begin with ``page_files``; ``device_site`` writes the page as plain files. Loads no torch; every
file has a digest that the page checks, and the page reaches nothing but its own origin.
"""
