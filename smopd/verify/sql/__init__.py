"""Judge SQL: the query of a reply and the reference query run on the same databases.

Import `database` only where a verdict is needed, since it imports sqlglot.
"""

from smopd.verify.sql.query import TIMEOUT as TIMEOUT
