"""The tables of a cluster of several machines in PostgreSQL; imported only if a cluster is configured."""
