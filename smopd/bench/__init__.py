"""How fast and how large: head, model passes, scoring step, sampling, verifying, against other paths."""
