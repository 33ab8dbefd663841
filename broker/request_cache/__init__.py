"""Request caches per connection: requests that repeat an earlier one are found by their bytes and not decoded."""
