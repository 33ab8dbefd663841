"""Streams groups (KIP-1071): their topology, and which member runs which task."""
