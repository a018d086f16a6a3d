// random_calls without C++ and without calls that only one allocator has.
#include "random_calls.h"

void new_block(struct block *block, unsigned choice, size_t size)
{
    (void)block, (void)choice, (void)size;
    abort();
}

void delete_block(const struct block *block)
{
    (void)block;
    abort();
}

void find_own_calls(const char *allocator)
{
    (void)allocator;
    abort();
}

const struct own_calls *own_calls(void)
{
    return NULL;
}

bool own_calls_abort(void)
{
    return false;
}
