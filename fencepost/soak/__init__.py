"""Soak test: a broker process, transacting client processes of three kinds, and a nemesis that kills, freezes and
starves them; then the clients' history is checked."""
