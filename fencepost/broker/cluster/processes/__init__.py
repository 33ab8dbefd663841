"""Several processes of one broker below one data directory: their leases and their directories."""
