"""`python -m fencepost` is the `fencepost` command."""

from fencepost.broker.main import main

main()
