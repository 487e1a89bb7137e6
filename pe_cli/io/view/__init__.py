"""Pictures of runs: charts, graphs, timelines, and the page that holds them."""
