"""Client quotas: what users and clients may use of the broker, and the throttle of those that used more."""
