"""Lowering: the nodes of a graph become tasks, which are kernel calls on buffers."""
