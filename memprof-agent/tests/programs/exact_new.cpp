// Blocks from operator new: the caller of malloc is the C++ library, the culprit is its caller.
#include "target.h"

#include <new>

extern "C" SITE void *site_new(size_t size)
{
    void *block = operator new(size);
    AFTER_CALL();
    return block;
}

extern "C" SITE void *site_new_array(size_t size)
{
    char *block = new char[size];
    AFTER_CALL();
    return block;
}
