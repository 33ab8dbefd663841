"""Groups of the consumer protocol (KIP-848), whose partitions the broker assigns; members of the classic protocol may
join one, too."""
