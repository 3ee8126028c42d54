"""The command line: one file per group of verbs, and the options they share."""
