"""`smopd view`: pages on runs, conversations and tokens, as files without server or network."""
