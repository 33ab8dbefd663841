"""Remote segments: the sealed segments of a cluster's logs, as objects: upload, fetch, merge and the sweep."""
