"""View runs: a self-contained report, pages to browse, and results in the terminal."""
