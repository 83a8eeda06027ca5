"""The connection of learner and actors: messages, sockets, secrets, queues on both sides."""
