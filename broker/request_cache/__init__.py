"""Requests that repeat an earlier one of their connection: found by their bytes, answered without decoding."""
