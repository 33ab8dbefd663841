"""Parts of `python -m tests.differences`: sequences of requests, what of a reply counts, how two brokers compare."""
