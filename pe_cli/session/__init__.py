"""The train, evaluate and predict loops: the one package that knows every stage."""
