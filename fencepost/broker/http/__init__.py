"""The HTTP listener: metrics, health, and the JSON API. Imported only where `fencepost.http.listener` is set."""
