"""Leases of nodes and the partitions that follow from them: the table, its store, moves and drains."""
