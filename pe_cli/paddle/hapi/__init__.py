"""What 2.x has over networks of `paddle.nn`: summaries, counts of operations, and a loop of training."""
