"""Sockets: listeners, connections, what they receive and send, and the way from a request to its handler."""
