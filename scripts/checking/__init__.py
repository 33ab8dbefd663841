"""What `./scripts/check` does after each change: style, types, layers, and the tests that are nearest to it."""
