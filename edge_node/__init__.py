"""A node: keys, outbox, inbox, relays and links, with or without a hub. It holds no code yet."""
