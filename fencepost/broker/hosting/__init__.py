"""Hosting of topics on this node: their logs, the placement of partitions, other nodes, features and configs."""
