"""What the brokers of several machines keep in PostgreSQL; imported only where a cluster is configured."""
