// Two threads allocate and free as fast as they can; every line from the test is answered by the
// number of pairs in the next 200 ms.
#include "target.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_size_t pairs[2][16]; // a cache line each
static atomic_int stop;

SITE void *spin_block(void)
{
    void *block = malloc(64);
    AFTER_CALL();
    return block;
}

SITE void *spin(void *argument)
{
    atomic_size_t *count = &pairs[(size_t)argument][0];
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        free(spin_block());
        atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_relaxed);
    }
    return NULL;
}

static size_t total(void)
{
    return pairs[0][0] + pairs[1][0];
}

int main(void)
{
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, spin, (void *)i))
            abort();
    say("ready");
    for (;;) {
        wait_for_line();
        size_t before = total();
        usleep(200000);
        say("value pairs %zu", total() - before);
        say("done");
    }
}
