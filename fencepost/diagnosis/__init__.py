"""Why readers wait, what is in doubt, how a transaction went, how far a group is behind: answers from facts. Pure."""
