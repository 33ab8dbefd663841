"""What every room stands on: supervision of tasks, deadlines, clocks, logging. Imports no room but `config`."""
