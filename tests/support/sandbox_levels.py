"""What programs of the sandbox's tests begin with."""

ONLY_IN_A_NAMESPACE = (
    "import os\nif os.getppid() != 1: raise SystemExit('not in a process namespace of its own')\n"
)
