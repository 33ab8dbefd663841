"""Values that were written with a schema of a registry: read for people, written for tests, and masked.

- schema: the data of a schema; wire: how a record names one; registry: asks for it.
- avro, protobuf, json_schema: read and write values by libraries, in a process of their own (worker, workers).
- decoding: keys and values of records; masking: rules that hide parts of them.
"""
