"""Programs cut for trainers and parameter servers: who has which rows, what each sends, and the ops that a server runs for it."""
