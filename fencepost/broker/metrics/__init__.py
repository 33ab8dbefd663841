"""Metrics: counters that only metrics need, one scrape of a node's state, and the metric families with their text."""
