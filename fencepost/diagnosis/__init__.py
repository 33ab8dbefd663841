"""Causes of waiting readers, transactions in doubt, their histories, lags of groups: derived from facts. Pure."""
