"""Rights of clients: principals, access control lists (ACLs), the authorizer, and the audit log."""
