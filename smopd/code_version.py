"""Which code made a result: the version, and a hash of the package's own source, as a checkout changes
without a new version.
"""

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path


@cache
def code_version() -> str:
    """Such as 0.1.0+src.1a2b3c4d."""
    root = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=4)
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{version('smopd')}+src.{digest.hexdigest()}"
