"""The peer, its connections to the other peers, and the coordinator of all peers."""
