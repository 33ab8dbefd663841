"""What `python -m tests.recording` is made of: a recording proxy, real clients to drive through it, and requests that
no client sends.
"""
