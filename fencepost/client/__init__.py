"""A small asyncio client of Kafka's protocol: connections, log-in, and one method to send any request."""
