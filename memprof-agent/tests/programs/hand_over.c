// Two threads hand each other blocks of one size class and free what they get: with one arena and no
// per-thread cache an address is handed out again the moment it was freed, often by the other thread.
#include "target.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { ROUNDS = 40000, KEEP_EVERY = 400, SIZE = 48 };

static _Atomic(void *) slot[2];
static void *volatile kept;
static atomic_size_t kept_blocks;

SITE void *handed_block(void)
{
    void *block = malloc(SIZE);
    AFTER_CALL();
    return block;
}

SITE void *partner(void *argument)
{
    size_t me = (size_t)argument;
    for (size_t round = 0; round < ROUNDS; round++) {
        void *mine = handed_block();
        free(atomic_exchange(&slot[1 - me], mine)); // what the other one has not taken yet
        sched_yield();
        void *theirs = atomic_exchange(&slot[me], NULL);
        if (theirs != NULL && round % KEEP_EVERY == 0) {
            kept = theirs;
            atomic_fetch_add(&kept_blocks, 1);
        } else {
            free(theirs);
            sched_yield();
        }
        if (round % 32 == 31)
            usleep(1000);
    }
    return NULL;
}

int main(void)
{
    mallopt(M_ARENA_MAX, 1);
    say("ready");
    wait_for_line();
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, partner, (void *)i))
            abort();
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < 2; i++)
        free(atomic_exchange(&slot[i], NULL));
    say_site("handed_block", kept_blocks * SIZE, kept_blocks);
    say("done");
    wait_for_line();
    return 0;
}
