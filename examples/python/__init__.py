"""One script for each of three people, cell by cell as in a notebook: what `sotto` does in Python.

`devices` is for who deploys devices, `noise` for who tunes the noise, `serving` for who serves
exported models. Each takes a folder, needs no download, and starts no process. Begin with
`devices`; the tests run all three. They import ``sotto`` and nothing below it.
"""
