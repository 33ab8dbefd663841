"""Rights of requests: the operations that each API needs, the gate that judges it, and the audit log of changes."""
