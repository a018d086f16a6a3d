// Blocks of many sizes on many arenas, most of them freed again, and what glibc says of them. `trim` follows.
#include "target.h"
#include <malloc.h>
#include <pthread.h>

enum { THREADS = 8, BLOCKS = 20000 };

static void *blocks[THREADS][BLOCKS];
static pthread_barrier_t filled, leave;

static void *fill(void *argument)
{
    void **mine = argument;
    unsigned state = (unsigned)(mine - blocks[0]) + 1;
    for (int i = 0; i < BLOCKS; i++) {
        state = state * 1664525u + 1013904223u;
        size_t size = 16 + state % (i % 10 ? 500 : 8000);
        mine[i] = malloc(size);
        memset(mine[i], 1, size);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (i % 50)
            free(mine[i]);
    pthread_barrier_wait(&filled);
    pthread_barrier_wait(&leave);
    return NULL;
}

int main(void)
{
    say("ready");
    wait_for_line();
    pthread_barrier_init(&filled, NULL, THREADS + 1);
    pthread_barrier_init(&leave, NULL, THREADS + 1);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, fill, blocks[i]);
    char *large = malloc(8 << 20);
    memset(large, 1, 8 << 20);
    pthread_barrier_wait(&filled);
    struct mallinfo2 info = mallinfo2();
    say("value system %zu", info.arena);
    say("value free_chunks %zu", info.ordblks);
    say("value free %zu", info.fordblks);
    say("value fast_chunks %zu", info.smblks);
    say("value fast %zu", info.fsmblks);
    say("value mmapped_chunks %zu", info.hblks);
    say("value mmapped %zu", info.hblkhd);
    say("done");
    wait_for_line();
    malloc_trim(0);
    say("done");
    wait_for_line();
    return large[5] - 1;
}
