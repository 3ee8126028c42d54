"""The command line: one file a group of verbs, the options they share, and progress on standard error."""
