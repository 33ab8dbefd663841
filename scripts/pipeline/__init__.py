"""A pipeline over real data: flights into a topic, an exactly-once application, PySpark over what it committed."""
