"""Judge SQL by running queries; `database` imports sqlglot, so import it only where needed."""
