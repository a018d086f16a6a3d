// Memory that the allocator maps for its blocks, in every way that glibc has, beside direct maps: thread
// stacks and a file.
#include "target.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>

enum { MIB = 1 << 20, THREADS = 3, BIG = 5 };

static void *kept[64];
static size_t used;

SITE void *big_malloc(void)
{
    void *block = malloc(MIB);
    AFTER_CALL();
    return block;
}

SITE void *big_calloc(void)
{
    void *block = calloc(3, MIB);
    AFTER_CALL();
    return block;
}

SITE void *big_realloc(void *block)
{
    block = realloc(block, 7 * MIB);
    AFTER_CALL();
    return block;
}

// glibc's memalign jumps to the function that does the work.
SITE void *big_memalign(void)
{
    void *block = memalign(1 << 16, 2 * MIB);
    AFTER_CALL();
    return block;
}

SITE void *big_posix_memalign(void)
{
    void *block = NULL;
    int error = posix_memalign(&block, 1 << 16, 2 * MIB);
    AFTER_CALL();
    return error ? NULL : block;
}

SITE void *big_pvalloc(void)
{
    void *block = pvalloc(2 * MIB);
    AFTER_CALL();
    return block;
}

// Below the limit from which glibc maps a block of its own: the heap grows by brk or in a thread's arena.
SITE void *small_malloc(void)
{
    void *block = malloc(50000);
    AFTER_CALL();
    return block;
}

SITE void *thread_work(void *argument)
{
    (void)argument;
    void *blocks[100];
    for (int i = 0; i < 100; i++)
        blocks[i] = small_malloc();
    for (int i = 0; i < 100; i++)
        free(blocks[i]);
    malloc_trim(0);
    wait_for_line();
    return NULL;
}

SITE void start_threads(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) || pthread_attr_setstacksize(&attributes, 4 * MIB))
        _exit(5);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread, &attributes, thread_work, NULL))
            _exit(5);
}

SITE void *map_file(void)
{
    int file = open("/proc/self/exe", O_RDONLY);
    void *start = mmap(NULL, 5000, PROT_READ, MAP_PRIVATE, file, 0);
    AFTER_CALL();
    if (start == MAP_FAILED)
        _exit(5);
    close(file);
    return start;
}

int main(void)
{
    say("ready");
    wait_for_line();
    for (int i = 0; i < BIG; i++) {
        kept[used++] = big_malloc();
        kept[used++] = big_calloc();
        kept[used++] = big_realloc(malloc(MIB));
        kept[used++] = big_memalign();
        kept[used++] = big_posix_memalign();
        kept[used++] = big_pvalloc();
    }
    for (int i = 0; i < 20; i++)
        kept[used++] = small_malloc();
    free(kept[0]); // the allocator's own map goes away
    map_file();
    start_threads();
    usleep(300000);
    say_site("big_malloc", (BIG - 1) * (size_t)MIB, BIG - 1);
    say_site("big_calloc", 3 * BIG * (size_t)MIB, BIG);
    say_site("big_realloc", 7 * BIG * (size_t)MIB, BIG);
    say_site("big_memalign", 2 * BIG * (size_t)MIB, BIG);
    say_site("big_posix_memalign", 2 * BIG * (size_t)MIB, BIG);
    say_site("big_pvalloc", 2 * BIG * (size_t)MIB, BIG);
    say_site("small_malloc", 20 * 50000, 20);
    say_site("map_file", 8192, 1);
    say("value stacks %d", THREADS * 4 * MIB);
    say("done");
    wait_for_line();
    return 0;
}
