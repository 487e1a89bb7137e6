"""The command `pe`: one file per subcommand, found by discovery; heavy modules are imported when a command runs."""
