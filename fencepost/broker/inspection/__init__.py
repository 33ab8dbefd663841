"""Inspection of a stopped broker's data directory: what is damaged, what that costs, and its repair."""
