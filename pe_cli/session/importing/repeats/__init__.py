"""Parts of an imported model that are repeated become blocks of its model file."""
