"""Committed offsets of groups, whatever their kind: who may commit, what is kept, what its records say."""
