"""The runtime of coordinators: partitions of internal topics, their shards, how they load and how they decide."""
