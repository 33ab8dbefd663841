"""Histories of what clients of a Kafka-protocol system did: recording them, and finding anomalies in them.

docs/history.md has the format and the anomalies. Nothing here knows which system the clients talked to.
"""
