"""The table of a keyboard from the public start: its rows, what is measured of a run, its page.

Begin with ``rows``. Each person is measured on the newest fifth of their own messages with four
keyboards: everyone's model, their own, and each with their own words beside it.
"""
