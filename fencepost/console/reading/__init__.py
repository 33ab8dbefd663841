"""What the pages show, gathered from a cluster: one module per page or two. Nothing here knows of HTML."""
