"""The web console: a program of its own, which shows any cluster that speaks Kafka's protocol.

It is a client as every other one: it imports nothing of the broker. `kafka` talks to the cluster, the cores beside this
file (`record_marks`, `stuck`, `time_travel`, `lag`) derive the shown facts, `reading` reads data, `web` makes pages.
"""
