"""Looking at a run: one self-contained HTML page, and conversations and accuracies in the terminal."""
