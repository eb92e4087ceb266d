"""Files under one manifest and one signature.

Begin with ``signed_files``, then ``keyboard_bundle``. Loads no torch. A file that the manifest does
not pin is never read, and a bundle is written whole or not at all.
"""
