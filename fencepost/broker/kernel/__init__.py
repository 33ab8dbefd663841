"""Foundations of every room: supervision of tasks, deadlines, clocks, logging. Imports no room but `config`."""
