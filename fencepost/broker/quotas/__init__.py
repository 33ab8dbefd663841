"""Client quotas: the limits of users and clients, and the throttle of those that exceed them."""
