"""`smopd view`: pages to look at runs, conversations and tokens, files without server or network."""
