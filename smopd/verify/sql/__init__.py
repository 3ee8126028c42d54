"""SQL: queries of replies and references, run on databases from a folder or made up from the schema.

`database` is the way in; it imports sqlglot, so callers import it where they judge.
"""

from smopd.verify.sql.query import TIMEOUT as TIMEOUT
