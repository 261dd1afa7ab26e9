"""`python -m leporello` is the command `leporello`."""

from leporello.cli import main

main()
