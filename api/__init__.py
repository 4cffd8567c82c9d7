"""The hub's HTTP side: takes messages, acks and signals, serves inboxes. It holds no code yet."""
