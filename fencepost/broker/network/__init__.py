"""Listeners, client connections with their buffers and bounds, and the dispatch of requests to handlers."""
