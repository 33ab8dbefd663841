"""Tests against a broker: the pytest plugin, a clock to turn, faults, and the words in which a test speaks to a broker.

`plugin` has the fixtures, `methods` their methods and those of `fencepost.Broker`. The broker imports none of it.
"""
