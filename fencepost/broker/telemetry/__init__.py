"""Metrics of clients: which are asked for, and those that clients push (KIP-714)."""
