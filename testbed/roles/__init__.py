"""The main loops of the devices, and the only place where sockets, clocks and algorithms meet."""
