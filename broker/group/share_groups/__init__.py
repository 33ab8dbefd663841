"""Share groups (KIP-932): their members and who reads which partition. What they acknowledge is in `broker.share`."""
