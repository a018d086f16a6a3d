// All functions that align, with all alignments, in some thousand calls each. Half of the blocks stay.
// Usage: aligned [pvalloc]: the last one is not in every allocator.
#include "target.h"

#include <malloc.h>
#include <stdint.h>

enum { ROUNDS = 120, ALIGNMENTS = 14 };

static void *volatile last;

SITE void *site_memalign(size_t alignment, size_t size)
{
    void *block = memalign(alignment, size);
    AFTER_CALL();
    return block;
}

SITE void *site_aligned_alloc(size_t alignment, size_t size)
{
    void *block = aligned_alloc(alignment, size);
    AFTER_CALL();
    return block;
}

SITE void *site_posix_memalign(size_t alignment, size_t size)
{
    void *block = NULL;
    if (posix_memalign(&block, alignment, size))
        abort();
    AFTER_CALL();
    return block;
}

SITE void *site_valloc(size_t alignment, size_t size)
{
    (void)alignment;
    void *block = valloc(size);
    AFTER_CALL();
    return block;
}

SITE void *site_pvalloc(size_t alignment, size_t size)
{
    (void)alignment;
#ifdef __GLIBC__
    void *block = pvalloc(size);
#else
    void *block = NULL;
#endif
    AFTER_CALL();
    return block;
}

static struct {
    const char *name;
    void *(*allocate)(size_t, size_t);
    size_t bytes, objects;
} sites[] = {
    { "site_memalign", site_memalign, 0, 0 },
    { "site_aligned_alloc", site_aligned_alloc, 0, 0 },
    { "site_posix_memalign", site_posix_memalign, 0, 0 },
    { "site_valloc", site_valloc, 0, 0 },
    { "site_pvalloc", site_pvalloc, 0, 0 },
};

int main(int argc, char **argv)
{
    (void)argv;
    size_t count = argc > 1 ? 5 : 4, misaligned = 0;
    say("ready");
    wait_for_line();
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < ALIGNMENTS; i++) {
            size_t alignment = (size_t)8 << i; // 8 bytes to 64 KiB
            // C11 has it that the size is a multiple of the alignment.
            size_t size = alignment * (1 + round % 3);
            for (size_t site = 0; site < count; site++) {
                void *block = sites[site].allocate(alignment, size);
                if (block == NULL)
                    abort();
                misaligned += (uintptr_t)block % (site < 3 ? alignment : 4096) != 0;
                if (round % 2) {
                    free(block);
                    continue;
                }
                last = block;
                sites[site].bytes += size;
                sites[site].objects++;
            }
        }
        usleep(1000);
    }
    for (size_t site = 0; site < count; site++)
        say_site(sites[site].name, sites[site].bytes, sites[site].objects);
    say("value misaligned %zu", misaligned);
    say("done");
    wait_for_line();
    return 0;
}
