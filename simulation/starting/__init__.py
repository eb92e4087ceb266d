"""A starting model, learnt from public text before anybody's device trains.

``cli`` has the subcommand, ``training`` the steps and ``finishing`` what they end in. Begin with
``command``. Imports the data sets' loaders and the word task; no federation takes part in it.
"""
