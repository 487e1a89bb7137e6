"""Programs of the original with loops and branches, whose operators run other blocks of the file."""
