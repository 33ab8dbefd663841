"""Histories of the operations of clients of a Kafka-protocol system: their recording, and the search for anomalies.

docs/history.md has the format and the anomalies. Nothing here depends on the system under test.
"""
