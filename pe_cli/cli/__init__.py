"""The command `pe`: one file a subcommand, found by discovery; heavy modules are imported when a command runs."""
