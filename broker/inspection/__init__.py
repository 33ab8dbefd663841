"""Looking into a stopped broker's data directory: what is wrong in it, what that costs, and putting it right."""
