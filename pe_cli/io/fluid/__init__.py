"""Files of PaddlePaddle 1.x: programs (`__model__`), values of variables, and what an operator of such a file is here."""
