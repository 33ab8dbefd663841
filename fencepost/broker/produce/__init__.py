"""The steps of a Produce request: batches, verification, appends and runs of several requests."""
