"""Share groups (KIP-932): their members and assignments. Acquired and acknowledged records are in `broker.share`."""
