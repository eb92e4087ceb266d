"""Name the errors that Python's ``zipfile`` raises if an archive, or an ``.npz``, is damaged."""

import zipfile
import zlib

# The last two: one flipped bit makes an archive of a version, a method or an encryption that
# zipfile knows nothing of.
ZIP_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
