"""Rights of requests: what each API needs, the gate that judges it, and what the audit log says of changes."""
