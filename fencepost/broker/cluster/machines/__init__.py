"""One broker of a cluster of machines, put together; and the check and the export of a cluster's rows and objects."""
