"""Streams groups (KIP-1071): their topologies, members and task assignments."""
