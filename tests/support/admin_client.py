"""What tests do with confluent-kafka's admin client."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 60


def create(admin: AdminClient, topic: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic; configs as in `cleanup_policy="compact"`."""
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(TIMEOUT_S)
