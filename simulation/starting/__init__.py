"""A starting model, learnt from public text or voices before anybody's device trains.

``cli`` has the subcommand, ``training`` the steps and ``finishing`` what they end in; the files
called ``voice_...`` are the same for voices. Begin with ``command``. Imports the data sets' loaders
and both tasks; no federation takes part in it.
"""
