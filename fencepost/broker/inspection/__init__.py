"""Inspection of a stopped broker's data directory: the damage, its cost, and its repair."""
