"""Objects of a cluster: sealed segments and large flushes in an S3-compatible store.

Imported only if brokers share such a store.
"""
