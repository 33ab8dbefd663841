"""Several broker processes that share metadata: which of them leads which partition, and what the others take over."""
