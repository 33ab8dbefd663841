"""One broker, put together: `Node` starts the parts that the modules of this package make."""

from fencepost.broker.node.node import Node
from fencepost.broker.node.storage import make_data_directory, sqlite_store

__all__ = ["Node", "make_data_directory", "sqlite_store"]
