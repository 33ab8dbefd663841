"""Objects of a cluster: sealed segments and large flushes in an S3-compatible store.

Imported only where brokers share such a store.
"""
