"""From a kernel's Python function to machine code: front end, LLVM, the cache on the disk, and checks of addresses."""
