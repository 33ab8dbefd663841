"""Metadata: topics, their configs and versioned values, behind one store; and their image in memory."""
