"""`python -m broker` is the `fencepost` command."""

from broker.main import main

main()
