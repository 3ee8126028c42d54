"""`python -m smopd.cli`, for launchers that start modules."""

from smopd.cli.main import main

main()
