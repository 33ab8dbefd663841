"""Metadata: topics, their configs and versioned values in one store, and their image in memory."""
