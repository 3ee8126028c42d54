"""`smopd view`: pages to look at runs, conversations and tokens, as files that need no server and no network."""
