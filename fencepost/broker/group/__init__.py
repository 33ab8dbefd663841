"""Group coordinator: all kinds of groups, their members, and their committed offsets."""
