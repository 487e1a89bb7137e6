"""YAML text -> nodes with places -> ModelSpec and RunSpec; every mistake of both files in one error."""
