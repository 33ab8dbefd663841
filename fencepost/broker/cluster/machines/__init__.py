"""One broker of a cluster of machines, put together; and the check and the export of what a cluster stores."""
