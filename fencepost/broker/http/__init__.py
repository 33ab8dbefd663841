"""The HTTP listener: metrics, health, and the JSON API. Imported only if `fencepost.http.listener` is set."""
