"""What scripts/diff_kafka.py is made of: sequences of requests, what of a reply counts, and how two brokers compare."""
