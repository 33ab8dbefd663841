"""Fencepost: a broker that speaks the Kafka wire protocol, with Kafka's transactions at its heart."""
