"""The tails of logs, which a cluster of machines shares: flushes, the seam to their store, and their restore."""
