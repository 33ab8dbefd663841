"""What stands between a connection and the handlers: declared APIs, their contexts, fetch sessions, long polls."""
