"""Tests against a broker: the pytest plugin, a clock to turn, faults, and the words in which a test speaks to a broker.

`plugin` has the fixtures, `methods` what they and `fencepost.Broker` offer. The broker imports nothing of this package.
"""
