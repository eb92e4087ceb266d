"""The first needs of every process: durable files, strict decoding, command lines, limits.

Begin with ``atomic_files``, ``strict_decoding`` and ``flags``. Loads no torch and imports no other
district. A file is either whole and on the disk or not there; a text that is not understood is
refused with its place.
"""
