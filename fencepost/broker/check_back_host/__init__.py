"""The broker's door to the check-back; imported only where resolvers are configured."""
