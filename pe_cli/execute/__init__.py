"""From a graph to a plan (kernel calls, memory, order), and the executor that runs plans."""
