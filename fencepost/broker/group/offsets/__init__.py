"""Committed offsets of all kinds of groups: checks of commits, decisions, storage, expiry and records."""
