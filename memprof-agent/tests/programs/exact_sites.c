// Threads leak known bytes through every allocator function while four other threads churn.
#include "target.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

enum { LEAKERS = 3, CHURNERS = 4, ROUNDS = 200, CHURN_PAIRS = 27000, WINDOW = 8, LARGEST = 3000 };

extern void *site_new(size_t size);
extern void *site_new_array(size_t size);

SITE void *site_malloc(size_t size)
{
    void *block = malloc(size);
    AFTER_CALL();
    return block;
}

SITE void *site_malloc_zero(size_t size)
{
    (void)size;
    void *block = malloc(0);
    AFTER_CALL();
    return block;
}

SITE void *site_calloc(size_t size)
{
    void *block = calloc(3, size);
    AFTER_CALL();
    return block;
}

// Grows in three steps; only the last block is alive afterwards.
SITE void *site_realloc(size_t size)
{
    void *block = malloc(16);
    AFTER_CALL();
    block = realloc(block, 16 + size / 2);
    AFTER_CALL();
    block = realloc(block, size);
    AFTER_CALL();
    return block;
}

// realloc without an old block: glibc calls malloc inside.
SITE void *site_realloc_null(size_t size)
{
    void *block = realloc(NULL, size);
    AFTER_CALL();
    return block;
}

// glibc calls realloc inside.
SITE void *site_reallocarray(size_t size)
{
    void *block = reallocarray(NULL, 5, size);
    AFTER_CALL();
    return block;
}

SITE void *site_posix_memalign(size_t size)
{
    void *block = NULL;
    int error = posix_memalign(&block, 256, size);
    AFTER_CALL();
    return error ? NULL : block;
}

SITE void *site_aligned_alloc(size_t size)
{
    void *block = aligned_alloc(64, size);
    AFTER_CALL();
    return block;
}

SITE void *site_memalign(size_t size)
{
    void *block = memalign(128, size);
    AFTER_CALL();
    return block;
}

SITE void *site_valloc(size_t size)
{
    void *block = valloc(size);
    AFTER_CALL();
    return block;
}

SITE void *site_pvalloc(size_t size)
{
    void *block = pvalloc(size);
    AFTER_CALL();
    return block;
}

// The C library's own call of malloc.
SITE void *site_strdup(size_t size)
{
    char text[LARGEST];
    memset(text, 'x', size - 1);
    text[size - 1] = 0;
    void *block = strdup(text);
    AFTER_CALL();
    return block;
}

static struct site {
    const char *name;
    void *(*allocate)(size_t);
    size_t times; // requested bytes per byte of the size argument
    atomic_size_t live_bytes, live_objects;
} sites[] = {
    { .name = "site_malloc", .allocate = site_malloc, .times = 1 },
    { .name = "site_malloc_zero", .allocate = site_malloc_zero, .times = 0 },
    { .name = "site_calloc", .allocate = site_calloc, .times = 3 },
    { .name = "site_realloc", .allocate = site_realloc, .times = 1 },
    { .name = "site_realloc_null", .allocate = site_realloc_null, .times = 1 },
    { .name = "site_reallocarray", .allocate = site_reallocarray, .times = 5 },
    { .name = "site_posix_memalign", .allocate = site_posix_memalign, .times = 1 },
    { .name = "site_aligned_alloc", .allocate = site_aligned_alloc, .times = 1 },
    { .name = "site_memalign", .allocate = site_memalign, .times = 1 },
    { .name = "site_valloc", .allocate = site_valloc, .times = 1 },
    { .name = "site_pvalloc", .allocate = site_pvalloc, .times = 1 },
    { .name = "site_strdup", .allocate = site_strdup, .times = 1 },
    { .name = "site_new", .allocate = site_new, .times = 1 },
    { .name = "site_new_array", .allocate = site_new_array, .times = 1 },
};
enum { SITES = sizeof sites / sizeof *sites };

// Where the leaked blocks stay reachable.
static void *kept[LEAKERS][ROUNDS][SITES];

static size_t size_of_block(size_t leaker, size_t round, size_t site)
{
    return 1 + (round * 37 + leaker * 611 + site * 101) % (LARGEST - 1);
}

SITE void *leak_worker(void *argument)
{
    size_t leaker = (size_t)argument;
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < SITES; i++) {
            size_t size = size_of_block(leaker, round, i);
            void *block = sites[i].allocate(size);
            if (block == NULL)
                abort();
            if (round % 4 == 3) { // a leak beside blocks of its own site that go away
                free(block);
                continue;
            }
            kept[leaker][round][i] = block;
            atomic_fetch_add(&sites[i].live_bytes, sites[i].times * size);
            atomic_fetch_add(&sites[i].live_objects, 1);
        }
        usleep(1000);
    }
    return NULL;
}

SITE void *churn_block(size_t step)
{
    size_t size = 1 + step * 7919 % LARGEST;
    void *block = NULL;
    switch (step % 5) {
    case 0: block = malloc(size); break;
    case 1: block = calloc(1, size); break;
    case 2: block = realloc(malloc(size), 2 * size); break;
    case 3: block = aligned_alloc(32, size); break;
    default: if (posix_memalign(&block, 64, size)) block = NULL; break;
    }
    AFTER_CALL();
    return block;
}

SITE void *churn_worker(void *argument)
{
    (void)argument;
    void *window[WINDOW] = { 0 };
    for (size_t step = 0; step < CHURN_PAIRS; step++) {
        free(window[step % WINDOW]);
        window[step % WINDOW] = churn_block(step);
        if (step % 32 == 31)
            usleep(1000);
    }
    for (size_t i = 0; i < WINDOW; i++)
        free(window[i]);
    return NULL;
}

int main(void)
{
    pthread_t threads[LEAKERS + CHURNERS];
    say("ready");
    wait_for_line();
    for (size_t i = 0; i < LEAKERS + CHURNERS; i++)
        if (pthread_create(&threads[i], NULL, i < LEAKERS ? leak_worker : churn_worker, (void *)i))
            abort();
    for (size_t i = 0; i < LEAKERS + CHURNERS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < SITES; i++)
        say_site(sites[i].name, sites[i].live_bytes, sites[i].live_objects);
    say("value churn_pairs %d", CHURNERS * CHURN_PAIRS);
    say("done");
    wait_for_line();
    return 0;
}
