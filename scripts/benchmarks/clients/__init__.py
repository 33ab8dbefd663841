"""Client programs that measure from their own processes, the same for every broker, see `client_process.py`."""
