"""Data of the pages, read from a cluster: one module per page or two. Nothing here knows of HTML."""
