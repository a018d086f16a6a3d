// Threads map and unmap memory at the same addresses, and unmap what others have mapped.
#include "target.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

enum { PAGE = 4096, THREADS = 4, ROUNDS = 4000, SLOTS = 8 };

// Start of a mapping, with its pages in the lowest bits.
static _Atomic uintptr_t slots[SLOTS];
static atomic_size_t live_pages, live_maps;

SITE char *race_map(size_t length)
{
    char *start = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    AFTER_CALL();
    if (start == MAP_FAILED)
        _exit(5);
    return start;
}

static void unmap(uintptr_t mapping)
{
    if (mapping && munmap((void *)(mapping & ~(uintptr_t)(PAGE - 1)), mapping % PAGE * PAGE))
        _exit(6);
}

SITE void *race_worker(void *argument)
{
    size_t self = (size_t)argument;
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t pages = 1 + (round * 7 + self) % 4;
        char *start = race_map(pages * PAGE);
        if (round % 100 == 99) {
            atomic_fetch_add(&live_pages, pages);
            atomic_fetch_add(&live_maps, 1);
        } else if (round % 3 == 0) {
            unmap(atomic_exchange(&slots[(round + self) % SLOTS], (uintptr_t)start | pages));
        } else {
            unmap((uintptr_t)start | pages);
        }
        pace(round);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    say("ready");
    wait_for_line();
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, race_worker, (void *)i))
            _exit(7);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < SLOTS; i++)
        unmap(slots[i]);
    say_site("race_map", live_pages * PAGE, live_maps);
    say("value maps %d", THREADS * ROUNDS);
    say("done");
    wait_for_line();
    return 0;
}
