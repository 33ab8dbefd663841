"""Several broker processes that share metadata: the leader of each partition, and the take-over from lost nodes."""
