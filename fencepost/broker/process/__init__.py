"""The processes that run nodes: `serve` in one, and the parent and its children of a broker of several."""
