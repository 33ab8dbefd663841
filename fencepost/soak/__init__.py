"""The soak: a broker process, transacting client processes of three kinds, and a nemesis that kills, freezes and
starves them; then what the clients saw is checked."""
