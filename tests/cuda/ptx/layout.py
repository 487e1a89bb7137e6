"""What translated kernels, the scheduler and the checks share: the words of a context, of a frame and of a region.

The context of a launch is a record of the function that looks at addresses: its first words are that function's arguments, which the
translated code fills in before every load and store.
"""

from __future__ import annotations

#: Words of a context that are the arguments of `machine.check`, in order.
ADDRESS, SIZE, KIND, LINE, THREAD, BLOCK, EPOCH, REGIONS, COUNT, CONTEXT, LINES = range(11)
#: Its function's address; base of shared memory; address of the kernel's parameters.
CHECK, SHARED, PARAMS = 11, 12, 13
#: The first failure: what, where, how large, in which line, by which thread and block, and who was there before.
FAILURE, FAILED_ADDRESS, FAILED_SIZE, FAILED_LINE, FAILED_THREAD, FAILED_BLOCK, FAILED_OTHER = range(14, 21)
#: Address of a place for what lies outside.
ASIDE = 21
#: threadIdx, blockIdx, blockDim, gridDim, three words each.
TID, CTAID, NTID, NCTAID = 22, 25, 28, 31
#: Words of a frame.
FRAME_WORDS = 34
#: Address of two words for each block, see `machine.check`; the thread that has fenced last, and the one whose atomic came behind that.
MET, FENCED, TOLD = 35, 36, 37
WORDS = 40

#: What an access is.
READ, WRITE, ATOMIC, FENCE = 0, 1, 2, 3
#: What a region is, and its words: begin, end, address of its shadow (0: none), bits of a shadowed piece, kind.
GLOBAL, BLOCK_SHARED, PRIVATE = 0, 1, 2
BEGIN, END, SHADOW, SHIFT, SPACE = range(5)
REGION = 5

#: Failures.
OUTSIDE, RACE, UNWRITTEN, DIVERGED, STUCK, MISALIGNED = 1, 2, 3, 4, 5, 6

#: What a thread waits for at a place where it stops.
FOR_BLOCK, FOR_WARP = 1, 2
#: Words of a frame: the lanes that a collective waits for, which of two mailboxes is in use, and these.
MASK, TURN, MAIL = 0, 1, 2
MAILBOX = 12
FRAME_HEAD = MAIL + 2 * MAILBOX
LANES = 32
