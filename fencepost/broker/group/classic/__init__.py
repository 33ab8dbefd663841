"""Groups of the classic protocol, whose members assign partitions among themselves."""
