"""Metrics: what is counted only for them, one scrape of a node's state, the families and the text that shows them."""
