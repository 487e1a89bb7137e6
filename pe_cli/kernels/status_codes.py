"""Status codes that a kernel writes into the first word of a status slot; 0 is success."""

OUT_OF_RANGE = 1
NOT_FINITE = 2
RAISED = 3
TOO_LONG = 4
EMPTY_SEQUENCE = 5
TOO_MANY_ROUNDS = 6
NOT_A_TREE = 7
