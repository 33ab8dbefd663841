"""Client programs that measure from processes of their own, the same for every broker, see `client_process.py`."""
