"""Runtime of coordinators: partitions of internal topics, their shards, loading and decisions."""
