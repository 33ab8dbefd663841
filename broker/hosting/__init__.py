"""What this node hosts: topics, their logs, where partitions are placed, other nodes, features and configs."""
