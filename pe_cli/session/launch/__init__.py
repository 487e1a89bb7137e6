"""Starts the processes of one training, on one or several machines, and restarts it with those that are left."""
