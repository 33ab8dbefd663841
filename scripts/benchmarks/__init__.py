"""What `scripts/bench.py` measures: one file per family of figures, and what they share."""
