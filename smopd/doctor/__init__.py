"""What this machine is, what a run would use on it, whether its results are right, and what to change."""
