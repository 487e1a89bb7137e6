"""Plans: a step of a graph for one batch shape, the order of its tasks, and how threads share them."""
