// A library whose one allocation site is named when it is built.
#include <stdlib.h>

__attribute__((noinline)) void *SITE_NAME(size_t size)
{
    void *block = malloc(size);
    __asm__ volatile("" ::: "memory");
    return block;
}

void *allocate(size_t size)
{
    void *block = SITE_NAME(size);
    __asm__ volatile("" ::: "memory");
    return block;
}
