"""The sections of a run file, one module each: names, types, bounds and defaults. JSON Schema and checks both come from here."""
