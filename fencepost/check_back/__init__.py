"""Check-back: it resolves a prepared transaction without an end by asking its source.

The broker runs it where resolvers are configured, and `fencepost check-back` runs it beside any Kafka. It never
guesses: only an answer decides, and a source that cannot be asked has not answered. Imports no broker.
"""
