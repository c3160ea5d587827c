"""One thing at a time, in virtual time: the kernel, its tasks, and the machine that a task sees."""
