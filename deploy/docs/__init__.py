"""The site of the guides: what `make docs` builds, and the check of every link.

Begin with `guides.py`, which reads the guides as CommonMark does. `python -m deploy.docs.check`
needs nothing but the environment of `make dev`; `python -m deploy.docs` needs the extra `docs` too.
Pages of the reference are made from settings and docstrings, so nothing here is kept up to date by
hand. May import every package, and nothing imports it but tests.
"""
