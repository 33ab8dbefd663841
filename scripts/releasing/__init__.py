"""Builds and tries what a release has, and finds what would make it wrong. Called by `scripts/release`."""
