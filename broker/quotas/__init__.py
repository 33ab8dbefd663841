"""Client quotas: what users and clients may use of the broker, and how long they pause when they have used more."""
