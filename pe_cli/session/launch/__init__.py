"""Starting the processes of one training, here or on other machines, and again with those that are left."""
