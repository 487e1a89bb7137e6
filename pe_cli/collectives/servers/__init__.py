"""Trainers and parameter servers: messages over TCP, the trainer's end, and the server's."""
