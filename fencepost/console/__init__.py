"""The web console: a program of its own, which shows any cluster that speaks Kafka's protocol.

It is a client as every other one: it imports nothing of the broker. `fencepost.client` connects it to the cluster,
`reading` reads the data, `fencepost.diagnosis` and the cores beside this file (`record_marks`, `time_travel`) derive
the shown facts, `web` makes pages.
"""
