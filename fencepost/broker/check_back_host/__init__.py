"""The broker's entry to the check-back; imported only if resolvers are configured."""
