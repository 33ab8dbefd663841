"""The shared part of handlers: served APIs, request contexts, fetch sessions, long polls and the append of Produce."""
