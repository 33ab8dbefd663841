"""Served APIs, request contexts, fetch sessions, long polls and the append of Produce: what handlers share."""
