"""What this machine is, what a run would use on it, whether it computes right, and what to change."""
