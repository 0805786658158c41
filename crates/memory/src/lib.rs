//! Volume memory: reserved address space, slabs, locks and the memory budget.
