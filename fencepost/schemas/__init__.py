"""Values that were written with a schema of a registry: read for people, written for tests, and masked.

- schema: what a schema is; wire: how a record names it; registry: asks for it.
- avro, protobuf, json_schema: read and write values by libraries, in a process of their own (worker, workers).
- decoding, encoding: records; masking: what is hidden of them.
"""
