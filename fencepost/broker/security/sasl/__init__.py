"""SASL: the authentication of clients by names with passwords, or by tokens."""
