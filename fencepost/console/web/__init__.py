"""Pages, sessions and changes: the part of the console that speaks HTTP. Pages work without JavaScript."""
