// THREADS threads with COUNT blocks of SIZE bytes each: "churn" frees each block at once, "leak" keeps it.
// Usage: threads churn|leak THREADS COUNT SIZE
#include "target.h"

#include <pthread.h>

enum { MOST = 64 };

static size_t count, size;
static int leaks;
static void *volatile last[MOST];

SITE void *allocate_here(size_t bytes)
{
    void *block = malloc(bytes);
    AFTER_CALL();
    return block;
}

SITE void *worker(void *argument)
{
    for (size_t i = 0; i < count; i++) {
        void *block = allocate_here(size);
        if (leaks) {
            last[(size_t)argument] = block;
            pace(i);
        } else {
            free(block);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    leaks = !strcmp(argv[1], "leak");
    size_t threads = number(argv[2]);
    count = number(argv[3]);
    size = number(argv[4]);
    pthread_t handles[MOST];
    if (threads > MOST)
        return 2;
    say("ready");
    wait_for_line();
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&handles[i], NULL, worker, (void *)i))
            abort();
    for (size_t i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    say_site("allocate_here", leaks ? threads * count * size : 0, leaks ? threads * count : 0);
    say("done");
    wait_for_line();
    return 0;
}
