"""Brokers for tests in any language: the methods of `fencepost.testing.methods` over HTTP.

`operations` is the table of them; `app` serves it, `document` describes it as OpenAPI, `program` is the process. The
broker imports none of it.
"""
